# SPDX-License-Identifier: Apache-2.0
"""Settings come from flags, environment, YAML and defaults, in that order, or are refused."""

from __future__ import annotations

import re
import string
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.cli import check_config, config
from exporter.cli.config import Address, Settings, Url
from exporter.cli.config.coerce import (
    ADDRESS,
    BOOLEAN,
    BYTES_PER_SECOND,
    GROUP,
    HOSTS,
    LOG_LEVEL,
    MODE,
    NAMES,
    PATTERN,
    Kind,
    Unexpected,
    duration,
)
from exporter.cli.config.flags import Flag
from exporter.errors import ConfigError
from exporter.sources.table import COUNTER_SOURCES
from tests.cli.config.table import updated

DOCUMENT = Path(__file__).parent.parent.parent.parent / "docs" / "configuration.md"

ANY_DURATION = duration("0s", "10000d")


@pytest.fixture
def ops(tmp_path: Path) -> Path:
    return tmp_path / "ops.yaml"


def problem(*argv: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as raised:
        config.load(argv, environ)
    return str(raised.value)


def problem_of_file(ops: Path, text: str) -> str:
    ops.write_text(text, encoding="utf-8")
    return problem("--config.file", str(ops)).removeprefix(f"{ops.parent}/")


# The table


def test_without_input_the_defaults_hold() -> None:
    """The defaults are those of the table, typed."""
    settings = config.load([], {})
    assert settings == Settings()
    assert settings.web_listen_address == Address("", 19400)
    assert settings.poll_interval_seconds == 1.0
    assert settings.gpu_forget_after_seconds == 86400.0
    assert settings.idle_link_rate_bytes_per_second == 10e6
    assert settings.hold_ignore[0] == "nvidia-cuda-mps-server"
    assert settings.metrics_exclude is None
    assert settings.precision is None


def test_every_field_of_the_settings_is_a_row() -> None:
    """No setting can exist that flags, environment and YAML do not know."""
    attributes = dict.fromkeys(flag.attribute for flag in config.FLAGS)
    assert [*attributes, "given"] == [field.name for field in fields(Settings)]


def test_counter_sources_are_those_switched_on() -> None:
    """By name, in order of preference."""
    names = tuple(row.name for row in COUNTER_SOURCES)
    enabled = tuple(row.name for row in COUNTER_SOURCES if row.enabled)
    assert Settings().counter_sources == enabled
    every = [f"--source.{name}" for name in reversed(names)]
    assert config.load(every, {}).counter_sources == names
    for name in names:
        others = tuple(other for other in names if other != name)
        assert config.load([*every, f"--no-source.{name}"], {}).counter_sources == others


OF_KINDS: dict[str, tuple[str, Any]] = {
    "ADDRESS": ("127.0.0.1:9", Address("127.0.0.1", 9)),
    "DURATION": ("60s", 60.0),
    "GPUS": ("0,GPU-1a2b-3c", ("0", "GPU-1a2b-3c")),
    "GROUP": ("gpu-users", "gpu-users"),
    "HOST:PORT|PATH": ("localhost", "localhost:5555"),
    "LIBRARY": ("libfake.so", "libfake.so"),
    "MODE": ("0660", 0o660),
    "NAME|FILE": ("/mine.yaml", Path("/mine.yaml")),
    "NAMES": ("gpu1.example.com,.lan", ("gpu1.example.com", ".lan")),
    "NUMBER": ("7", 7),
    "PATH": ("/mine", Path("/mine")),
    "RATE": ("5M", 5e6),
    "RATIO": ("0.02", 0.02),
    "REGEX": ("team|app", re.compile("team|app")),
    "URL": ("https://a:b@node7:1/gpus", Url("https", "node7", 1, "/gpus", "a", "b")),
    "USER": ("prometheus", "prometheus"),
}
"""An example of each kind of value, and what it means."""


def example(flag: Flag) -> tuple[str, Any]:
    """A value that is not the default of a flag: as text, and what it means."""
    if flag.is_switch:
        return ("true", True) if flag.default == "false" else ("false", False)
    if flag.name == "cupti.duty":  # it is at most 1
        return "0.25", 0.25
    word = next(each for each in flag.kind.metavar.split("|") if each != flag.default)
    return OF_KINDS.get(flag.kind.metavar, (word, word))


EXAMPLES = {flag.name: example(flag) for flag in config.FLAGS if flag.name != "config.file"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_flag_variable_and_key_mean_the_same(name: str, ops: Path) -> None:
    """``--a.b-c`` is YAML ``a: {b-c: …}`` is ``ROOFLINE_A_B_C``."""
    text, value = EXAMPLES[name]
    flag = config.BY_NAME[name]
    switch = f"--{name}" if value is True else f"--no-{name}"
    argv = [switch] if flag.is_switch else [f"--{name}", text]
    nested: Any = text
    for part in reversed(name.split(".")):
        nested = {part: nested}
    ops.write_text(yaml.safe_dump(nested))
    loaded = (
        config.load(argv, {}),
        config.load([], {"ROOFLINE_" + name.upper().replace(".", "_").replace("-", "_"): text}),
        config.load([], {"ROOFLINE_CONFIG_FILE": str(ops)}),
    )
    assert [settings.value(flag) for settings in loaded] == [value] * 3
    assert Settings().value(flag) != value


# Order


def test_flag_comes_before_variable_before_file_before_default(ops: Path) -> None:
    """The nearest word counts, and the settings know whose it was."""
    ops.write_text("poll:\n  interval: 2s\n  slow-interval: 20s\nprocess.max: 5\n")
    argv = ["--config.file", str(ops), "--poll.interval=4s"]
    settings = config.load(argv, {"ROOFLINE_POLL_INTERVAL": "3s", "ROOFLINE_PROCESS_MAX": "6"})
    assert settings.poll_interval_seconds == 4
    assert settings.process_max == 6
    assert settings.poll_slow_interval_seconds == 20
    described = settings.describe()
    assert described["poll.interval"] == "4s (--poll.interval)"
    assert described["process.max"] == "6 (ROOFLINE_PROCESS_MAX)"
    assert described["poll.slow-interval"] == f"20s ({ops}:3: poll.slow-interval)"
    assert "log.level" not in described


def test_the_last_of_two_flags_counts() -> None:
    """A wrapper script's flags can be overridden by appending."""
    settings = config.load(["--source.gpm", "--no-source.gpm", "--process.max=1"], {})
    assert "gpm" not in settings.sources
    assert "gpm" in config.load(["--no-source.gpm", "--source.gpm"], {}).sources


def test_an_empty_variable_is_not_set() -> None:
    """Templates that leave a variable empty change nothing."""
    assert config.load([], {"ROOFLINE_POLL_INTERVAL": "", "ROOFLINE_SPECS": ""}) == Settings()


def test_an_empty_flag_unsets_what_is_optional() -> None:
    """A flag can take back what a variable set."""
    settings = config.load(["--specs="], {"ROOFLINE_SPECS": "a.yaml"})
    assert settings.specs is None


def test_a_wrong_value_is_refused_even_where_another_comes_before_it() -> None:
    """A mistake does not hide until the day the flag is removed."""
    assert problem("--process.max=3", ROOFLINE_PROCESS_MAX="x").startswith("ROOFLINE_PROCESS_MAX: ")


@pytest.mark.parametrize("text", ["", "# nothing\n", "poll:\nidle: {}\n"])
def test_an_empty_file_or_section_sets_nothing(ops: Path, text: str) -> None:
    """A file whose lines are all commented out is valid."""
    ops.write_text(text)
    assert config.load([f"--config.file={ops}"], {}) == config.load(
        [], {"ROOFLINE_CONFIG_FILE": str(ops)}
    )


def test_paths_in_a_file_start_at_the_file(ops: Path) -> None:
    """A configuration directory can be moved as a whole; library names are for the loader."""
    ops.write_text("specs: mine.yaml\nnvml: {library: libnvidia-ml.so.1}\npath.procfs: /host\n")
    settings = config.load(["--config.file", str(ops)], {})
    assert settings.specs == ops.parent / "mine.yaml"
    assert settings.nvml_library == "libnvidia-ml.so.1"
    assert settings.path_procfs == Path("/host")


def test_a_list_is_a_yaml_list_or_has_commas(ops: Path) -> None:
    """Both spellings give the same names."""
    for text in ("[Xorg, 7zip, 5]", '"Xorg, 7zip,5"'):
        ops.write_text(f"hold: {{ignore: {text}}}")
        assert config.load([f"--config.file={ops}"], {}).hold_ignore == ("Xorg", "7zip", "5")
    ops.write_text("hold: {ignore: []}")
    assert config.load([f"--config.file={ops}"], {}).hold_ignore == ()


def test_the_slow_interval_is_raised_to_the_interval_unless_set() -> None:
    """One flag is enough for a slower poll; two that contradict are refused."""
    settings = config.load(["--poll.interval=30s"], {})
    assert settings.poll_slow_interval_seconds == 30
    assert settings.describe()["poll.slow-interval"] == "30s (raised to poll.interval)"
    assert config.load(["--poll.interval=5s"], {}).poll_slow_interval_seconds == 10
    assert (
        problem("--poll.slow-interval=500ms")
        == "--poll.slow-interval: expected at least poll.interval (1s), got '500ms'"
    )


# What is refused


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--poll.interval", "1x"], "--poll.interval: expected a duration such as 500ms, 1s or"),
        (["--poll.interval=10ms"], "--poll.interval: expected 100ms to 60s, got '10ms'"),
        (["--poll.interval"], "--poll.interval: expected a duration from 100ms to 60s, got no"),
        (["--poll.intervals=1s"], "unknown flag --poll.intervals, did you mean --poll.interval?"),
        (["-web.listen-address=:1"], "unknown flag -web.listen-address, did you mean --web.list"),
        (["--no-poll.interval"], "unknown flag --no-poll.interval"),
        (["--source.gpm=false"], "--source.gpm/--no-source.gpm: takes no value"),
        (["everything"], "unexpected argument 'everything' (see roofline-exporter --help)"),
        (["--", "x"], "unexpected argument '--'"),
        (["--metrics.exclude", "("], "--metrics.exclude: expected a regular expression (missing"),
        (["--specs", "a\nb\0"], "--specs: expected a path, got 'a\\nb\\x00'"),
        (["--config.file=/nowhere.yaml"], "/nowhere.yaml: cannot be read"),
    ],
)
def test_a_bad_command_line_is_one_line(argv: list[str], message: str) -> None:
    """The line names the flag and what was expected."""
    assert problem(*argv).startswith(message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ROOFLINE_POLL_INTREVAL", ": unknown variable, did you mean ROOFLINE_POLL_INTERVAL?"),
        ("ROOFLINE_X\nY", "unknown variable"),
        ("ROOFLINE_", ": unknown variable"),
        ("ROOFLINE_PROCESS_MAX", ": expected a whole number from 1 to 1024, got 'x'"),
    ],
)
def test_a_bad_variable_is_refused_by_name(name: str, message: str) -> None:
    """A typo in a variable is not silently ignored."""
    line = problem(**{name: "x"})
    assert line.startswith(name.replace("\n", "\\n") + ":")
    assert message in line


def test_variables_of_others_are_left_alone() -> None:
    """What jobs read, and what Kubernetes sets for a Service of our name, is no typo of ours."""
    kubernetes = {
        "ROOFLINE_EXPORTER_SERVICE_HOST": "10.0.0.1",
        "ROOFLINE_EXPORTER_SERVICE_PORT_METRICS": "19400",
        "ROOFLINE_EXPORTER_PORT": "tcp://10.0.0.1:19400",
        "ROOFLINE_EXPORTER_PORT_19400_TCP_ADDR": "10.0.0.1",
        "ROOFLINE_SERVICE_HOST": "10.0.0.2",
        "ROOFLINE_PORT": "tcp://10.0.0.2:80",
    }
    others = {"ROOFLINE_JOB_NAME": "x", "ROOFLINE_JOB_INSTRUMENT": "1", "PATH": "/bin"}
    assert config.load([], {**kubernetes, **others}) == Settings()
    assert problem(**kubernetes, ROOFLINE_WEB_PORT="1").startswith("ROOFLINE_WEB_PORT: unknown")
    del kubernetes["ROOFLINE_EXPORTER_SERVICE_HOST"]
    assert problem(**kubernetes).startswith("ROOFLINE_EXPORTER_PORT: unknown variable")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("poll:\n\n\n  interval: 1x", "4: poll.interval: expected a duration such as 500ms, 1s"),
        ("poll:\n  interval:", "2: poll.interval: expected a duration from 100ms to 60s, got no"),
        (
            "poll: {interval: [1s]}",
            "1: poll.interval: expected a duration from 100ms to 60s, got a",
        ),
        ("poll: 1s", "1: poll: expected keys below it, such as poll.interval, got '1s'"),
        ("poll: {intreval: 1s}", "1: poll.intreval: unknown key, did you mean poll.interval?"),
        ("specs: {a: 1}", "1: specs: expected a path, got a mapping"),
        ("poll.interval: 1s\npoll: {interval: 2s}", "2: poll.interval: set twice"),
        ("config: {file: a.yaml}", "1: config.file: a file cannot name another"),
        ("process: {max: 99999999999999999999999999}", "1: process.max: expected a whole number"),
        ("idle: {threshold: .nan}", "1: idle.threshold: expected a ratio from 0 to 1, such as 0."),
        ("gpu: {include: [0, GPU 1]}", "1: gpu.include: expected indexes or UUIDs of GPUs with"),
        ("hold: {ignore: [[a]]}", "1: hold.ignore: expected names with commas between them"),
        ("- 1s", "1: expected keys such as poll, got a list"),
        ('"a\\nb": 1', "1: a\\nb: unknown key"),
        ("poll: ]", "1: "),
    ],
)
def test_a_bad_file_is_one_line_with_its_number(ops: Path, text: str, message: str) -> None:
    """The line names file, line, key and what was expected."""
    line = problem_of_file(ops, text)
    assert line.startswith(f"ops.yaml:{message}")
    assert "\n" not in line


def test_check_all_names_every_problem(ops: Path, tmp_path: Path) -> None:
    """Flags, variables, file and spec file are all looked at, a line for each problem."""
    specs = tmp_path / "specs.yaml"
    specs.write_text("nonsense: [")
    ops.write_text(f"poll: {{interval: 1x, what: 2}}\nspecs: {specs.name}\n")
    argv = ["--config.file", str(ops), "--bogus", "5", "--also-bogus", "--process.max=x", "word"]
    problems = check_config.problems(argv, {"ROOFLINE_BOGUS": "1"})
    starts = (
        "unknown flag --bogus",
        "unknown flag --also-bogus",
        "--process.max: expected",
        "ROOFLINE_BOGUS: unknown",
        f"{ops}:1: poll.interval: expected",
        f"{ops}:1: poll.what: unknown",
        f"{specs}:",
    )
    assert [line[: len(start)] for line, start in zip(problems, starts, strict=True)] == [*starts]
    assert check_config.problems([], {}) == ()


def test_problems_end_with_the_first_hundred(ops: Path) -> None:
    """Each costs a suggestion: all of 40,000 took seconds, at every SIGHUP."""
    ops.write_text("".join(f"poll.intreval{number}: 1s\n" for number in range(40_000)))
    begun = time.process_time()
    of_file = check_config.problems(["--config.file", str(ops)], {})
    assert time.process_time() - begun < 5
    of_flags = check_config.problems([f"--bogus{number}" for number in range(5000)], {})
    for problems, start in (
        (of_file, f"{ops}:100: poll.intreval99: unknown key, did you mean poll.in"),
        (of_flags, "unknown flag --bogus99"),
    ):
        assert len(problems) == 101
        assert problems[99].startswith(start)
        assert problems[100] == "only the first 100 problems are named, there may be more"
    assert len(check_config.problems([f"--bogus{number}" for number in range(100)], {})) == 100


def test_a_long_name_is_cut(ops: Path) -> None:
    """A line of the log is not as long as a file."""
    ops.write_text(f"{'k' * 900}: 1\n")
    (line,) = check_config.problems(["--config.file", str(ops)], {})
    assert line == f"{ops}:1: {'k' * 57}...: unknown key"
    (line,) = check_config.problems([f"--{'x' * 900}=1"], {})
    assert len(line) < 120
    (line,) = check_config.problems([], {f"ROOFLINE_{'X' * 900}": "1"})
    assert len(line) < 120


# Reload


def test_reload_takes_what_it_can_and_names_the_rest(ops: Path) -> None:
    """A changed listen address needs a restart and keeps its old value meanwhile."""
    ops.write_text("web: {listen-address: ':1'}\nidle: {threshold: 0.05}\nlog: {level: debug}\n")
    argv = ["--config.file", str(ops)]
    old = config.load(argv, {})
    ops.write_text("web: {listen-address: ':2'}\nidle: {threshold: 0.5}\nsource: {gpm: off}\n")
    reloaded = config.reload(old, argv, {})
    assert reloaded.needs_restart == ("web.listen-address", "source.gpm")
    assert reloaded.settings.web_listen_address == Address("", 1)
    assert "gpm" in reloaded.settings.sources
    assert reloaded.settings.idle_threshold_ratio == 0.5
    assert reloaded.settings.log_level == "info"
    assert set(reloaded.settings.given) == {"config.file", "web.listen-address", "idle.threshold"}
    assert reloaded.settings.given["web.listen-address"].text == ":1"


def test_reload_of_bad_input_raises(ops: Path) -> None:
    """The caller keeps its settings, which reading again cannot touch."""
    ops.write_text("process: {max: 3}")
    argv = ["--config.file", str(ops)]
    old = config.load(argv, {})
    ops.write_text("process: {max: many}")
    with pytest.raises(ConfigError, match=r":1: process\.max: expected a whole number"):
        config.reload(old, argv, {})
    ops.write_text("process: {max: 3}")
    assert config.reload(old, argv, {}) == config.Reloaded(old, ())


# Values


HOST_NAMES = ("*", ".example.com", "gpu1.example.com.", "gpu_1", "192.0.2.1")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ANY_DURATION, {"100ms": 0.1, "700ms": 0.7, "1.5s": 1.5, "10m": 600, "24h": 86400}),
        (BYTES_PER_SECOND, {"0": 0, "1e7": 1e7, "10MB": 1e7, "10mB": 1e7, "500k": 5e5, "2T": 2e12}),
        (
            ADDRESS,
            {
                ":0": Address("", 0),
                "localhost:80": Address("localhost", 80),
                "gpu-node_7.example.org:65535": Address("gpu-node_7.example.org", 65535),
                "[fe80::1%eth0]:1": Address("fe80::1%eth0", 1),
            },
        ),
        (BOOLEAN, dict.fromkeys(("true", "1", "yes", "on", "TRUE", "On"), True)),
        (BOOLEAN, dict.fromkeys(("false", "0", "no", "off", "No"), False)),
        (LOG_LEVEL, dict.fromkeys(("warn", "WARN", "Warning"), "warning") | {"Info": "info"}),
        (MODE, {"0666": 0o666, "660": 0o660, "0000": 0, "777": 0o777}),
        (NAMES, {" a , b": ("a", "b")}),
        (HOSTS, {", ".join(HOST_NAMES): HOST_NAMES}),
    ],
)
def test_what_texts_mean(kind: Kind[Any], values: dict[str, object]) -> None:
    """Durations are exact, rates have decimal multiples, permissions are octal as for chmod."""
    assert {text: kind.parse(text) for text in values} == values


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (ANY_DURATION, ("", "1", "s", "1 s", "-1s", "+1s", "1e3s", "1S", "٣s", "1s\n")),
        (BYTES_PER_SECOND, ("", "M", "-1", "1Mi", "10 M", "inf", "nan", "10Mb/s")),
        (ADDRESS, ("", "19400", "localhost", ":65536", ":-1", "::1:19400", "[::1]", "*:1")),
        (ADDRESS, ("[localhost]:1", "[::1%\x01]:1", "300.0.0.1:1", "1.2.3:1", "a b:1", ":1 ")),
        (ADDRESS, ("-a:1", "http://a:1")),
        (MODE, ("", "66", "0668", "00666", "1777", "0o660", "rw-rw----", "-660")),
        (GROUP, ("", "a b", "-x", "a:b", "a\n", "a/b")),
        (NAMES, ("a,,b", "a,", ",", "a\nb")),
        (HOSTS, ("a b", "https://a", "a:80", "a/", "*.example.com", "-", "a,,b")),
        (PATTERN, ("(", "a{9" + "9" * 30 + "}", "a{" + "9" * 5000 + "}", "(" * 5000, "[", "\\")),
    ],
)
def test_other_spellings_are_refused(kind: Kind[Any], texts: tuple[str, ...]) -> None:
    """Nothing is guessed: a unit, a port and ASCII digits are required."""
    for text in texts:
        with pytest.raises(Unexpected):
            kind.parse(text)


@pytest.mark.parametrize("kind", {id(flag.kind): flag.kind for flag in config.FLAGS}.values())
@given(
    text=st.text()
    | st.text("0123456789.eE+-msh", max_size=12)
    | st.text(string.punctuation + "ab1", max_size=12)
)
def test_any_text_is_read_or_refused(kind: Any, text: str) -> None:
    """No text makes a parser fail in another way, or return a number that is not finite."""
    value, expected = None, ""
    try:
        value = kind.parse(text)
    except Unexpected as error:
        expected = str(error) or kind.expected
    assert expected.isprintable()
    assert not isinstance(value, float) or 0 <= value < float("inf")


def test_an_expression_that_python_warns_of_is_taken() -> None:
    """What a later Python may read otherwise is no problem of today."""
    assert PATTERN.parse("[[a]x").fullmatch("[x")


def test_permissions_in_a_file_need_no_quotes(ops: Path) -> None:
    """A leading zero does not make YAML read another number."""
    ops.write_text("training: {socket-mode: 0660, socket-group: 107}")
    settings = config.load(["--config.file", str(ops)], {})
    assert settings.training_socket_mode == 0o660
    assert settings.training_socket_group == "107"


# Anything else

KEYS = st.sampled_from(
    sorted({part for flag in config.FLAGS for part in (*flag.name.split("."), flag.name)})
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
DATA = st.recursive(
    LEAVES | st.sampled_from([text for text, _ in EXAMPLES.values()]),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), below, max_size=5)
    ),
    max_leaves=20,
)


def assert_one_line_at_most(argv: list[str], environ: dict[str, str]) -> None:
    line, settings = "", Settings()
    try:
        settings = config.load(argv, environ)
    except ConfigError as error:
        line = str(error)
    assert line.isprintable()
    assert settings.poll_slow_interval_seconds >= settings.poll_interval_seconds


@given(data=DATA | st.dictionaries(KEYS, DATA))
def test_any_yaml_is_read_or_refused(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Only ConfigError escapes, with one printable line."""
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(yaml.safe_dump(data, allow_unicode=False))
    assert_one_line_at_most(["--config.file", str(file)], {})


VARIABLES = st.sampled_from([f.variable for f in config.FLAGS if f.name != "config.file"])


@given(st.dictionaries(VARIABLES | st.text().map("ROOFLINE_".__add__) | st.text(), st.text()))
def test_any_environment_is_read_or_refused(environ: dict[str, str]) -> None:
    """Only ConfigError escapes, with one printable line."""
    assert_one_line_at_most([], environ)


WORDS = st.sampled_from([f.option for f in config.FLAGS if f.name != "config.file"])


@given(st.lists(WORDS | st.text() | st.text().map("--".__add__) | st.sampled_from(["-h", "--"])))
def test_any_command_line_is_read_or_refused(argv: list[str]) -> None:
    """Only ConfigError escapes, with one printable line."""
    if not any(word.startswith("--config.file=") for word in argv):
        assert_one_line_at_most(argv, {})


# The documentation


def test_the_documentation_shows_the_table() -> None:
    """The generated part is up to date; `make docs` writes it."""
    document = DOCUMENT.read_text(encoding="utf-8")
    assert updated(document) == document


def test_the_example_in_the_documentation_is_valid(ops: Path) -> None:
    """What a reader copies works as it is."""
    document = DOCUMENT.read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", document, re.DOTALL)
    ops.write_text(example)
    settings = config.load(["--config.file", str(ops)], {})
    assert len(settings.given) > 3
