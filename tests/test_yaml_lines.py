# SPDX-License-Identifier: Apache-2.0
"""What the YAML reader promises: plain data, the line of each key, one clear line when it fails."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ConfigError
from exporter.yaml_lines import MAX_BYTES, MAX_DEPTH, MAX_NODES, load, loads

TEXT = """\
# comment
web:
  listen-address: ':19400'
poll: {interval: 1s,
       burst: 0.5}
gpus:
  - index: 0
  - index: 1
    on: yes
"""


def test_data_and_lines() -> None:
    """Data comes back plain and each key and list item knows its line."""
    document = loads(TEXT, "a.yml")
    assert document.value == {
        "web": {"listen-address": ":19400"},
        "poll": {"interval": "1s", "burst": 0.5},
        "gpus": [{"index": 0}, {"index": 1, "on": True}],
    }
    assert document.line(("web",)) == 2
    assert document.line(("web", "listen-address")) == 3
    assert document.line(("poll", "burst")) == 5
    assert document.line(("gpus", 0)) == 7
    assert document.line(("gpus", 1, "on")) == 9
    assert document.where(("gpus", 1)) == "a.yml:8"


def test_absent_key_has_its_parents_line() -> None:
    """The line of a key that is not there is that of its nearest parent, else the first."""
    document = loads(TEXT, "a.yml")
    assert document.line(("web", "tls", "cert")) == 2
    assert document.line(("gpus", 1, "index", "deeper")) == 8
    assert document.line(("nothing",)) == 1
    assert document.line(()) == 1


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("-1_000", -1000),
        ("0x1EB8", 0x1EB8),
        (".5", 0.5),
        ("1e+3", 1000.0),
        ("1.5E2", 150.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        (".nan", math.nan),
        ("~", None),
        ("Null", None),
        ("TRUE", True),
        ("off", False),
        ("!!str 12", "12"),
        ("1E30", "1E30"),
        ("0123", "0123"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("=", "="),
    ],
)
def test_scalars(scalar: str, value: object) -> None:
    """Unquoted scalars mean what YAML 1.2 says (and yes, no, on, off); PCI ids stay text."""
    assert repr(loads(f"a: {scalar}", "f").value["a"]) == repr(value)


def test_keys_are_text() -> None:
    """Keys are the text in the file, also where a value of that form would be something else."""
    assert loads("on: 1\n2330: 2\n~: 3\n'': 4", "f").value == {"on": 1, "2330": 2, "~": 3, "": 4}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_an_empty_document_is_none(text: str) -> None:
    assert loads(text, "f").value is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f:3: key 'a' again, expected it once (it is on line 1)"),
        ("a:\n\t- x", "f:2: a tab or a reserved character starts a value or an indent, expected"),
        ("a: [1,\nb: 2", "f:3: did not find expected ',' or ']', expected valid YAML"),
        ("a: &x 1", "f:1: anchor or alias 'x', expected the value written out"),
        ("a: !!python/object/apply:os.system [id]", "f:1: tag tag:yaml.org,2002:python/object"),
        ("a: ! 12", "f:1: tag !, expected plain YAML"),
        ("a\n---\nb", "f:2: a second document, expected one"),
        ("? [1]\n: 2", "f:1: a list or mapping as a key, expected text"),
        ("a: \x07", "f:1: control character U+0007, expected printable text"),
        ("a: 1\nb: \ud800", "f:2: control character U+D800"),
        ("a: " + "[" * (MAX_DEPTH + 1), f"f:1: nested deeper than {MAX_DEPTH} levels"),
        ("- " * 100_000, f"f:1: nested deeper than {MAX_DEPTH} levels"),
        ("a: " + "9" * 10_000, "f:1: a number with too many digits"),
    ],
)
def test_refused(text: str, message: str) -> None:
    """What is not one plain YAML document is refused in one line that names file and line."""
    with pytest.raises(ConfigError) as caught:
        loads(text, "f")
    assert str(caught.value).startswith(message)
    assert "expected" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file(tmp_path: Path) -> None:
    """A file is read as UTF-8, with or without a byte order mark."""
    path = tmp_path / "a.yml"
    path.write_bytes(b"\xef\xbb\xbfname: \xc3\xbc\n")
    document = load(path)
    assert document.value == {"name": "ü"}
    assert document.where(("name",)) == f"{path}:1"


def test_files_that_are_refused(tmp_path: Path) -> None:
    """Not UTF-8, not there, no file, a device or a huge one: one line that names it."""
    path, folder = tmp_path / "a.yml", tmp_path / "a\nb.yml"
    path.write_bytes(b"a: 1\nname: \xe9\n")
    large = tmp_path / "large.yml"
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    folder.mkdir()
    for bad, message in (
        (path, f"{path}:2: byte 0xe9 is not UTF-8, expected UTF-8 text"),
        (tmp_path / "none", f"{tmp_path}/none: cannot be read (No such file or directory), expect"),
        (folder, f"{tmp_path}/a\\nb.yml: cannot be read (Is a directory), expected a YAML file"),
        (large, f"{large}: more than {MAX_BYTES} bytes, expected a smaller YAML file"),
        (Path("/dev/zero"), "/dev/zero: cannot be read (a device, not a regular file), expected"),
    ):
        with pytest.raises(ConfigError) as caught:
            load(bad)
        assert str(caught.value).startswith(message)


def test_text_that_is_small_and_costs_much_is_refused() -> None:
    """Many values, keys and numbers as long as a file."""
    for text, message in (
        ("-\n" * (MAX_NODES + 1), f"more than {MAX_NODES} values, expected a smaller YAML file"),
        (f'? "{"k" * 10_000}"\n: 1\n? "{"k" * 10_000}"\n: 2', "f:3: key 'kkk"),
        ("a: &" + "x" * 10_000 + " 1", "f:1: anchor or alias 'xxx"),
        ("a: !!" + "x" * 900 + " 1", "f:1: tag tag:yaml.org,2002:xxx"),
        ("a: 0x" + "f" * 2000, "f:1: a number with too many digits"),
        ("a: " + "9" * 2000 + ".5", "f:1: a number with too many digits"),
    ):
        begun = time.process_time()
        with pytest.raises(ConfigError) as caught:
            loads(text, "f")
        assert time.process_time() - begun < 5
        assert message in str(caught.value)
        assert len(str(caught.value)) < 200
    key = ("k" * 500, "x")
    assert len(str(loads("a: 1", "f").error(key, "not known"))) < 100
    assert loads("a: " + "word" * 500, "f").value == {"a": "word" * 500}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


@given(PLAIN, st.booleans())
def test_reads_what_pyyaml_writes(value: object, flow: bool) -> None:
    """Plain data that PyYAML wrote, in its block or flow style, is read back the same."""
    text = yaml.dump(value, Dumper=_NoAliases, default_flow_style=flow)
    assert loads(text, "f").value == value


@given(st.text())
def test_any_text_is_data_or_one_line(text: str) -> None:
    """Whatever the text, the outcome is plain data or one line that begins with the name."""
    try:
        document = loads(text, "f")
    except ConfigError as error:
        message = str(error)
        assert message.startswith("f:")
        assert message.isprintable()
    else:
        assert all(line >= 1 for line in document.lines.values())
