# SPDX-License-Identifier: Apache-2.0
"""The daemon is asked over TLS and with a password, by flags or by its own web configuration."""

from __future__ import annotations

import base64
import http.server
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from exporter.cli import config
from exporter.cli.config import Settings
from exporter.cli.daemon_address import daemon_of
from exporter.cli.http_get import DaemonAddress, get
from exporter.errors import SourceError
from tests.cli.outcomes import Outcome
from tests.cli.stub import Stub, speaking
from tests.serving import serving

PASSWORD = "s3cret:p@ss"
LOGIN = f"Basic {base64.b64encode(f'prom:{PASSWORD}'.encode()).decode()}"


class _Server(Stub):
    """Answers with 200 whoever knows the password, if there is one."""

    def __init__(self, context: ssl.SSLContext | None, login: str | None) -> None:
        super().__init__()
        self.context, self.login = context, login

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(5)
        try:
            if self.context is not None:
                request = self.context.wrap_socket(request, server_side=True)
            super().finish_request(request, client_address)
        except OSError:  # refused by one side: what the tests are about
            pass
        finally:
            request.close()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        return (200 if self.login in (None, request.headers["Authorization"]) else 401), b""


@dataclass(frozen=True)
class Pki:
    """A CA with what it signed, in files."""

    ca: trustme.CA
    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    folder, ca = tmp_path_factory.mktemp("pki"), trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(folder / "other-ca.pem"))
    for name, host in (("server", "127.0.0.1"), ("elsewhere", "node7.example"), ("client", "c.ex")):
        leaf = ca.issue_cert(host)
        leaf.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        with open(folder / f"{name}.pem", "wb") as file:
            file.writelines(pem.bytes() for pem in leaf.cert_chain_pems)
        leaf.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}-both.pem"))
    return Pki(ca, folder)


@pytest.fixture
def start(pki: Pki) -> Iterator[Callable[..., int]]:
    """Starts a server that shows a certificate of this name; gives its port."""
    with ExitStack() as stack:

        def server(
            name: str | None = "server", login: str | None = None, *, wants_client: bool = False
        ) -> int:
            context = None
            if name is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(pki.path(f"{name}.pem"), pki.path(f"{name}.key"))
            if context is not None and wants_client:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(pki.path("ca.pem"))
            return stack.enter_context(serving(_Server(context, login)))

        yield server


Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(outcome: Outcome) -> Check:
    """Runs healthcheck; gives its exit code and line."""

    def run(*words: str) -> tuple[int, str]:
        code, out, err = outcome("healthcheck", *words)
        assert (out + err).count("\n") == 1
        return code, (out + err).rstrip("\n")

    return run


def test_with_the_ca_that_signs_it(start: Callable[..., int], pki: Pki, check: Check) -> None:
    """The flags name it; the systems' CAs do not know it, and another's name is refused."""
    port, elsewhere = start(), start("elsewhere")
    url = f"https://127.0.0.1:{port}"
    said = f"{url}/-/healthy: 200"
    assert check("--url", url, "--url.ca-file", pki.path("ca.pem")) == (0, said)
    hint = "(--url.ca-file names the CA that signs it)"
    for words in (["--url", url], ["--url", url, "--url.ca-file", pki.path("other-ca.pem")]):
        code, line = check(*words)
        assert code == 1
        assert line.startswith(f"{url}/-/healthy: its certificate is refused: ")
        assert line.endswith(hint)
    code, line = check(f"--url=https://127.0.0.1:{elsewhere}", "--url.ca-file", pki.path("ca.pem"))
    assert code == 1
    assert "mismatch" in line
    assert line.endswith(" (ask by a name that is in it)")
    assert check("--url", url, "--url.insecure")[0] == 0


def test_a_certificate_without_its_key(pki: Pki, check: Check) -> None:
    """What is missing is the key, or it is another one."""
    words = ["--url=https://a", "--url.cert-file", pki.path("client.pem")]
    code, line = check(*words)
    assert code == 2
    assert line.startswith("roofline-exporter: url.key-file: missing, expected it or a key in ")
    code, line = check(*words, "--url.key-file", pki.path("server.key"))
    assert code == 2
    assert line.endswith("server.key: the key does not belong to the certificate")


def test_by_variables_and_by_file(
    start: Callable[..., int],
    pki: Pki,
    check: Check,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """One name in three places; in YAML the keys below url stand beside it."""
    url = f"https://127.0.0.1:{start()}"
    with monkeypatch.context() as patched:
        patched.setenv("ROOFLINE_URL", url)
        patched.setenv("ROOFLINE_URL_CA_FILE", pki.path("ca.pem"))
        assert check()[0] == 0
        patched.delenv("ROOFLINE_URL_CA_FILE")
        assert check()[0] == 1
    file = tmp_path / "ops.yaml"
    os.symlink(pki.path("ca.pem"), tmp_path / "ca.pem")
    file.write_text(f"url: {url}\nurl.ca-file: ca.pem\n")
    assert check("--config.file", str(file))[0] == 0


def test_with_a_password(start: Callable[..., int], check: Check, tmp_path: Path) -> None:
    """In a file, or percent-encoded in the URL; it is nowhere printed."""
    port = start(None, LOGIN)
    url, file = f"http://127.0.0.1:{port}", tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    good = ["--url", url, "--url.user=prom", f"--url.password-file={file}"]
    assert check(*good) == (0, f"{url}/-/healthy: 200")
    said = f"{url}/-/healthy: 200"
    assert check(f"--url=http://prom:s3cret%3Ap%40ss@127.0.0.1:{port}") == (0, said)
    assert check(f"--url=prom@127.0.0.1:{port}", f"--url.password-file={file}")[0] == 0
    flags = "(--url.user, --url.password-file)"
    said = f"{url}/-/healthy: 401, user and password expected {flags}"
    assert check("--url", url) == (1, said)
    said = f"{url}/-/healthy: 401, user and password refused {flags}"
    assert check(f"--url=http://prom:s3cret@127.0.0.1:{port}") == (1, said)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--url.user=a"], "url.password-file: missing, expected a u"),
        (["--url.password-file=/p"], "url.user: missing, expected a user and a"),
        (["--url=http://a:s3cret@a", "--url.user=a"], "url.user: expected no user in --url besi"),
        (["--url=http://a:s3cret@a", "--url.password-file=a"], "url.password-file: expected n"),
        (["--url=http://a", "--url.ca-file=a"], "url.ca-file: expected an https:// address in"),
        (["--url.insecure"], "url.insecure: expected an https:// addre"),
        (["--url=https://a", "--url.key-file=a"], "url.key-file: expected url.cert-file too"),
        (["--url=https://a", "--url.insecure", "--url.ca-file=a"], "url.insecure: expected no url"),
        (["--url=ftp://a:s3cret@b"], "--url: expected a URL such as http://127.0.0.1:19400, g"),
        (["--url=a:s3cret@b:port"], "--url: expected a URL such as http://127.0.0.1:19400, go"),
        (["--url=http://a%3Ab:s3cret@b"], "--url: expected a URL such as http://127"),
        (["--url.user=a:b"], "--url.user: expected a name without a co"),
        (["--url=https://a", "--url.ca-file=/none"], "url.ca-file: /none: cannot be read (No s"),
        (["--url=https://a", "--url.cert-file=/dev/zero"], "url.cert-file: /dev/zero: cannot "),
        (["--url=https://a", "--url.ca-file={empty}"], "url.ca-file: {empty}: expected PEM wi"),
        (["--url=a", "--url.user=a", "--url.password-file=/dev/zero"], "url.password-file: /dev/"),
    ],
)
def test_what_contradicts_itself_is_one_line(
    words: list[str], message: str, check: Check, tmp_path: Path
) -> None:
    """Exit code 2; nothing secret is in the line."""
    empty = tmp_path / "empty"
    empty.touch()
    code, line = check(*(word.format(empty=empty) for word in words))
    assert code == 2
    assert line.startswith(f"roofline-exporter: {message.format(empty=empty)}")
    assert "s3cret" not in line


def test_a_password_is_never_shown() -> None:
    """Neither where settings are logged nor where objects are."""
    settings = config.load(["--url=https://prom:s3cret@node7:1/a"], {})
    assert settings.describe()["url"] == "https://...@node7:1/a (--url)"
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in repr(settings.given)


def test_plain_and_tls_mixed_up(start: Callable[..., int], check: Check, pki: Pki) -> None:
    """Each side of the mistake has its line."""
    plain, tls = start(None), start()
    url = f"https://127.0.0.1:{plain}"
    said = f"{url}/-/healthy: answers without TLS, expected http:// in --url"
    assert check("--url", url) == (1, said)
    url = f"http://127.0.0.1:{tls}"
    said = f"{url}/-/healthy: answers with TLS, expected https:// in --url, or --web.config.file"
    assert check("--url", url) == (1, said)


def test_with_a_client_certificate(start: Callable[..., int], check: Check, pki: Pki) -> None:
    """Its key is in a file of its own or in the same."""
    url = f"https://127.0.0.1:{start(wants_client=True)}"
    words = ["--url", url, "--url.ca-file", pki.path("ca.pem")]
    cert, key = (pki.path(f"client.{suffix}") for suffix in ("pem", "key"))
    assert check(*words, "--url.cert-file", cert, "--url.key-file", key)[0] == 0
    assert check(*words, "--url.cert-file", pki.path("client-both.pem"))[0] == 0
    code, line = check(*words)
    assert code == 1
    assert "client certificate" in line
    assert line.endswith("(--url.cert-file, --url.key-file)")


# This node, by the daemon's own web configuration


@pytest.fixture
def web(tmp_path: Path, pki: Pki) -> Callable[..., Any]:
    """Writes a web configuration; gives the settings of a daemon at this port that has it."""

    def settings(port: int, tls: str, *words: str) -> Settings:
        path = tmp_path / "web.yml"
        path.write_text(f"tls_server_config:\n{tls}")
        given = config.load([f"--web.listen-address=:{port}", *words], {})
        return replace(given, web_config_file=path)

    return settings


def _status(settings: Settings) -> int:
    daemon = daemon_of(settings, "healthcheck")
    assert daemon.url.scheme == "https"
    return _ask(daemon)


def _ask(daemon: DaemonAddress) -> int:
    return get(daemon, "/", seconds=5, most_bytes=10).status


def test_this_node_is_trusted_by_its_own_certificate(
    start: Callable[..., int], web: Callable[..., Any], pki: Pki, tmp_path: Path
) -> None:
    """Whatever it is called and whoever signed it; no other certificate of that CA will do."""
    port = start("elsewhere")
    pem = (pki.folder / "elsewhere.pem").read_text()
    inline = "  cert: |\n" + "".join(f"    {line}\n" for line in pem.splitlines())
    for tls in (f"  cert_file: {os.path.relpath(pki.path('elsewhere.pem'), tmp_path)}\n", inline):
        assert _status(web(port, tls)) == 200
    with pytest.raises(SourceError, match=r"refused: .* \(expected the one of .*web\.yml\)$"):
        _status(web(port, f"  cert_file: {pki.path('server.pem')}\n"))
    with pytest.raises(SourceError, match="expected a certificate in PEM"):
        _status(web(port, f"  cert_file: {pki.path('server.key')}\n"))
    with pytest.raises(SourceError, match="No such file"):
        _status(web(port, "  cert_file: none.pem\n"))


def test_a_certificate_that_is_replaced_is_trusted_at_once(
    start: Callable[..., int], web: Callable[..., Any], pki: Pki, tmp_path: Path
) -> None:
    """`status --watch` asks on and on."""
    file = tmp_path / "cert.pem"
    file.write_bytes(Path(pki.path("server.pem")).read_bytes())
    daemon = daemon_of(web(start("elsewhere"), f"  cert_file: {file}\n"), "status")
    with pytest.raises(SourceError):
        _ask(daemon)
    file.write_bytes(Path(pki.path("elsewhere.pem")).read_bytes())
    assert _ask(daemon) == 200


def test_this_node_wants_a_client_certificate(
    start: Callable[..., int], web: Callable[..., Any], pki: Pki
) -> None:
    """It is said which flags give one, before anything is asked."""
    port = start(wants_client=True)
    tls = f"  cert_file: {pki.path('server.pem')}\n"
    tls += "  client_auth_type: RequireAndVerifyClientCert\n"
    with pytest.raises(SourceError, match=r"needed \(--url.cert-file, --url.key-file\)$"):
        _status(web(port, tls))
    assert _status(web(port, tls, "--url.cert-file", pki.path("client-both.pem"))) == 200


def test_the_flags_come_before_the_web_configuration(
    start: Callable[..., int], web: Callable[..., Any], pki: Pki
) -> None:
    """Where they name a CA, or none, that holds."""
    port, tls = start(), f"  cert_file: {pki.path('elsewhere.pem')}\n"
    assert _status(web(port, tls, "--url.ca-file", pki.path("ca.pem"))) == 200
    assert _status(web(port, tls, "--url.insecure")) == 200


def test_a_web_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    """Whoever asks is often not the daemon's user; a daemon that is named needs no file."""
    settings = replace(config.load([], {}), web_config_file=tmp_path)
    with pytest.raises(SourceError, match=r"\(--url names the daemon without it\)$"):
        daemon_of(settings, "status")
    (tmp_path / "web.yml").write_text("basic_auth_users: {}")
    settings = replace(settings, web_config_file=tmp_path / "web.yml")
    assert daemon_of(settings, "status").url.scheme == "http"


def test_something_else_in_place_of_a_handshake() -> None:
    """A peer that takes the connection and leaves is no reason to speak of TLS."""
    with speaking(lambda connection: None, connections=2) as url:
        daemon = daemon_of(config.load(["--url", url], {}), "x")
        with pytest.raises(SourceError) as caught:
            get(daemon, "/", seconds=5, most_bytes=10)
    assert "TLS" not in str(caught.value)
