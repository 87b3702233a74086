# SPDX-License-Identifier: Apache-2.0
"""``status`` and ``healthcheck`` ask a daemon that serves HTTPS and wants a password."""

from __future__ import annotations

from pathlib import Path

import bcrypt
import pytest

from tests.e2e.conftest import RunCommand, StartDaemon
from tests.e2e.daemons import Daemon
from tests.web.access.authority import cert_pem, client, key_pem, write_files

PASSWORD = "s3cret"
TLS = "tls_server_config:\n  cert_file: node.crt\n  key_file: node.key\n"
CLIENTS = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.pem\n"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(6)).decode()
USERS = f"basic_auth_users:\n  prom: {HASH}\n"


class Node:
    """A daemon with a web configuration, and the variables that it and its commands share."""

    def __init__(self, folder: Path, start: StartDaemon, command: RunCommand) -> None:
        self.folder, self._start, self._command = folder, start, command
        write_files(folder)
        (folder / "client.pem").write_bytes(cert_pem(client()) + key_pem(client()))
        (folder / "password").write_text(f"{PASSWORD}\n")

    def start(self, text: str) -> Daemon:
        """Serve the demo with this web configuration."""
        config = self.folder / "web.yml"
        config.write_text(text)
        daemon = self._start({}, "--demo", f"--web.config.file={config}")
        self.local = {
            "ROOFLINE_WEB_CONFIG_FILE": str(config),
            "ROOFLINE_WEB_LISTEN_ADDRESS": f":{daemon.port}",
        }
        return daemon

    def run(self, environ: dict[str, str], *words: str) -> tuple[int, str]:
        """Run a command; return its exit code and all that it printed."""
        run = self._command(environ, *words)
        return run.wait(), run.stdout.decode() + "".join(run.lines())


@pytest.fixture
def node(tmp_path: Path, start: StartDaemon, command: RunCommand) -> Node:
    return Node(tmp_path, start, command)


def test_on_the_node_by_the_daemons_own_variables(node: Node) -> None:
    """Health needs no password; the rest of it does, and a line names the flags."""
    daemon = node.start(TLS + USERS)
    assert node.run(node.local, "healthcheck") == (
        0,
        f"https://127.0.0.1:{daemon.port}/-/healthy: 200 healthy\n",
    )
    code, line = node.run(node.local, "healthcheck", "--ready")
    assert code == 1
    assert "401, user and password expected (--url.user, --url.password-file)" in line
    login = {
        "ROOFLINE_URL_USER": "prom",
        "ROOFLINE_URL_PASSWORD_FILE": str(node.folder / "password"),
    }
    assert node.run({**node.local, **login}, "healthcheck", "--ready")[0] == 0
    code, table = node.run({**node.local, **login}, "status")
    assert code == 0
    assert "8 GPUs" in table
    assert PASSWORD not in table


def test_from_elsewhere_by_url(node: Node) -> None:
    """With the CA of the daemon's certificate; plain HTTP on its port has a line of its own."""
    port = node.start(TLS + USERS).port
    url = f"https://prom:{PASSWORD}@localhost:{port}"
    ca = f"--url.ca-file={node.folder / 'clients.pem'}"
    code, table = node.run({}, "status", "--url", url, ca)
    assert (code, "8 GPUs" in table) == (0, True)
    assert node.run({"ROOFLINE_URL": url}, "healthcheck", "--ready", ca)[0] == 0
    code, line = node.run({}, "status", "--url", f"https://prom:wrong@localhost:{port}", ca)
    assert code == 1
    assert "401, user and password refused" in line
    assert "wrong" not in line
    code, line = node.run({}, "healthcheck", "--url", url)
    assert code == 1
    assert "certificate is refused" in line
    code, line = node.run({}, "healthcheck", "--url", f"http://127.0.0.1:{port}")
    assert code == 1
    assert "answers with TLS, expected https:// in --url" in line


def test_with_client_certificates(node: Node) -> None:
    """Without one the line names the flags that give one."""
    port = node.start(TLS + CLIENTS).port
    certificate = f"--url.cert-file={node.folder / 'client.pem'}"
    code, line = node.run(node.local, "healthcheck")
    assert code == 1
    assert "a client certificate is needed (--url.cert-file, --url.key-file)" in line
    assert node.run(node.local, "healthcheck", certificate)[0] == 0
    remote = ("--url", f"https://localhost:{port}", f"--url.ca-file={node.folder / 'clients.pem'}")
    assert node.run({}, "healthcheck", *remote, certificate)[0] == 0
    code, line = node.run({}, "healthcheck", *remote)
    assert code == 1
    assert "client certificate" in line
