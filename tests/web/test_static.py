# SPDX-License-Identifier: Apache-2.0
"""Assets are served under an address that changes with them, cached, typed and locked down."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from exporter.web import static
from exporter.web.static import CONTENT_TYPES, FOLDER, asset_path

SERVED = sorted(
    path.relative_to(FOLDER).as_posix()
    for path in FOLDER.rglob("*")
    if path.suffix in CONTENT_TYPES
)
LIMIT_BYTES = 135_000
LIMIT_ON_THE_WIRE_BYTES = 54_000


@pytest.mark.parametrize("name", SERVED)
def test_every_asset(client: TestClient, name: str) -> None:
    """Each file is served as it is, under its address, for a year."""
    plain = (FOLDER / name).read_bytes()
    url = f"/{asset_path(name)}"
    answer = client.get(url, headers={"accept-encoding": "identity"})
    assert answer.status_code == 200
    assert answer.content == plain
    assert answer.headers["content-type"] == CONTENT_TYPES[Path(name).suffix]
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["vary"] == "Accept-Encoding"
    with client.stream("GET", url, headers={"accept-encoding": "gzip"}) as zipped:
        assert zipped.headers["content-encoding"] == "gzip"
        assert gzip.decompress(b"".join(zipped.iter_raw())) == plain


def test_assets_are_light() -> None:
    """All files together stay below 135 kB as they are, and below 54 kB on the wire."""
    plain = {name: len((FOLDER / name).read_bytes()) for name in SERVED}
    assert sum(plain.values()) < LIMIT_BYTES, plain
    zipped = {name: len(gzip.compress((FOLDER / name).read_bytes(), 9)) for name in SERVED}
    assert sum(zipped.values()) < LIMIT_ON_THE_WIRE_BYTES, zipped


def test_every_asset_is_used(client: TestClient) -> None:
    """The pages load each file that is served, and nothing has to be found out by running one."""
    pages = client.get("/").text + client.get("/gpu/0").text
    loaded = set(re.findall(r'(?:src|href)="\.\.?/(static/[^"]+)"', pages))
    assert loaded == {asset_path(name) for name in SERVED}
    for name in SERVED:
        for imported in re.findall(r'from "\./([a-z_]+\.js)"', (FOLDER / name).read_text("utf-8")):
            assert asset_path(imported) in loaded, (name, imported)


def test_the_address_follows_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another byte, or another name, is another address for all; what is not an asset has none."""
    monkeypatch.setattr(static, "FOLDER", tmp_path)
    urls = set()
    for name, text in (("a.js", "1"), ("a.js", "2"), ("b.js", "2")):
        for path in tmp_path.iterdir():
            path.unlink()
        (tmp_path / name).write_text(text, encoding="ascii")
        (tmp_path / "notes.md").write_text(text * 3, encoding="ascii")
        static._assets.cache_clear()
        urls.add(asset_path(name).rpartition("/")[0])
        with pytest.raises(KeyError):
            asset_path("notes.md")
    static._assets.cache_clear()
    assert len(urls) == 3


@pytest.mark.parametrize("name", ["nope.js", "../static.py", "..%2fstatic.py", "%2e%2e/static.py"])
def test_nothing_else_is_served(client: TestClient, name: str) -> None:
    """Only the folder's files, only under the address of this release."""
    folder = asset_path(SERVED[0]).split("/")[1]
    assert client.get(f"/static/{folder}/{name}").status_code == 404
    assert client.get(f"/static/000000000000/{SERVED[0]}").status_code == 404


SCRIPT = """
import sys
from starlette.testclient import TestClient
from exporter.cli.wiring import Parts
from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.specs import load_specs
from exporter.web.store import Store
from exporter.web.app import create_app
from tests import snapshots

store = Store()
app = create_app(
    store=store,
    pages=Pages(RenderOptions()),
    specs=load_specs,
    poll_interval_seconds=lambda: 1.0,
)
store.publish(snapshots.EXAMPLES["mixed"])
client = TestClient(app)
for path in ("/", "/gpu/0", "/metrics", "/-/ready", "/api/openapi.json"):
    assert client.get(path).status_code == 200, path
for path in ("gpus", "gpus/0", "roofline", "training", "diagnosis", "idle", "specs"):
    assert client.get(f"/api/v1/{path}").status_code == 200, path
for path in ("gpus/0/history", "roofline/trails"):
    assert client.get(f"/api/v1/{path}").status_code == 200, path
assert client.head("/api/v1/stream").status_code == 200
print("pydantic" in sys.modules, "yaml" in sys.modules)
"""


def test_what_is_served_needs_no_framework() -> None:
    """Pages, metrics and the API are served without what checks files and recordings: 7 MB."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "False False\n"), done.stderr
