# SPDX-License-Identifier: Apache-2.0
"""What is read off a dcgm-exporter's page."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter.model.dcgm import FIELDS, HIGHEST_RATIO, MEDIA_FIELDS
from exporter.model.reading import Activity
from exporter.sources.dcgm.page import BY_NAME, NotDcgm, parse
from tests.sources.dcgm.pages import BLANKS, COMPLETING, FULL, OTHER, STOCK, UUID, Rows, page

COMPLETE = Activity(
    "dcgm",
    1.0,
    engine=0.93,
    sm=0.88,
    occupancy=0.5,
    dram=0.27,
    tensor=0.41,
    fp64=0.0,
    fp32=0.3,
    fp16=0.1,
    integer=0.2,
    pcie_transmit_bytes=1.5e9,
    pcie_receive_bytes=2.5e9,
)


@pytest.mark.parametrize("current", [False, True])
@pytest.mark.parametrize("uuid_label", ["UUID", "uuid"])
def test_both_generations_of_names_say_the_same(current: bool, uuid_label: str) -> None:
    """Rates are per second, also where the list of metrics calls them counters."""
    text = page(Rows(FULL), current=current, uuid_label=uuid_label)

    assert parse(text)[UUID].activities == {None: COMPLETE}


def test_every_field_has_its_place() -> None:
    """Each field is one member of an activity, and no two are the same."""
    for field in FIELDS:
        value = 5e9 if field.is_rate else 0.5
        fields = {1001: 0.9, field.number: value}
        (found,) = parse(page(Rows(fields)))[UUID].activities.values()
        assert getattr(found, field.activity) == value

    assert [field.number for field in FIELDS] == list(range(1001, 1017))
    assert len({field.activity for field in FIELDS}) == len(FIELDS)
    assert len(BY_NAME) == sum(len(field.names) for field in (*FIELDS, *MEDIA_FIELDS))
    assert len(COMPLETING) == 8


def test_engines_of_one_kind_are_averaged() -> None:
    """The mean is over the engines that the GPU has."""
    text = page(Rows({1001: 0.5, 1017: 0.8, 1019: 0.2, 1033: 0.3}))

    (found,) = parse(text)[UUID].activities.values()

    assert (found.decoder, found.jpeg, found.ofa) == (0.5, None, 0.3)


def test_instances_are_apart_and_have_no_link_traffic() -> None:
    """A GPU's own rows are not those of an instance; traffic of an instance means nothing."""
    found = parse(page(Rows({1001: 0.9}), Rows(STOCK, gpu_instance=7), Rows(STOCK, gpu_instance=1)))

    assert set(found[UUID].activities) == {None, 1, 7}
    assert found[UUID].activities[7] == Activity("dcgm", 1.0, engine=0.93, tensor=0.41, dram=0.27)


@pytest.mark.parametrize("instance", ["-1", "x", "1.0", "12345", "٣"])
def test_a_row_of_no_instance_is_left_out(instance: str) -> None:
    """A row with an invalid instance number is ignored."""
    text = page(Rows(gpu_instance=3)).replace('GPU_I_ID="3"', f'GPU_I_ID="{instance}"')

    with pytest.raises(NotDcgm):
        parse(text)


@pytest.mark.parametrize("blank", BLANKS)
def test_what_cannot_be_is_left_out(blank: float) -> None:
    """A blank beside readings costs only itself."""
    rows = parse(page(Rows(FULL | {1001: blank, 1009: blank})))[UUID]

    (found,) = rows.activities.values()
    assert (found.engine, found.pcie_transmit_bytes, found.sm) == (None, None, 0.88)
    assert not rows.blank


@pytest.mark.parametrize(
    ("fields", "blank"),
    [
        *((dict.fromkeys((1001, 1004, 1005), blank), True) for blank in (*BLANKS, 57.0)),
        ({}, False),
        ({1009: 1e9, 1010: 1e9}, False),
    ],
)
def test_a_gpu_without_a_value_has_no_activity(fields: dict[int, float], blank: bool) -> None:
    """A value of 57 is not taken for 57 %. A GeForce has no profiling fields; link traffic does not
    show how busy a GPU is."""
    rows = parse(page(Rows(fields)))[UUID]

    assert (rows.activities, rows.blank) == ({}, blank)


def test_any_reading_that_moves_renews_the_page() -> None:
    """Also power, energy and temperature: the activities of an idle GPU stay 0. NaN does not."""
    idle = dict.fromkeys((1001, 1004, 1005), 0.0)

    def signature(**readings: float) -> object:
        return parse(page(Rows(idle | {1002: math.nan}, readings)))[UUID].signature

    assert signature(power=50.0, energy=1.0) == signature(power=50.0, energy=1.0)
    assert signature(power=50.0, energy=1.0) != signature(power=50.0, energy=2.0)


def test_timestamps_are_of_the_newest_row() -> None:
    """In seconds."""
    assert parse(page(Rows()))[UUID].timestamp_seconds is None
    assert parse(page(Rows(timestamp_ms=1_700_000_000_500)))[UUID].timestamp_seconds == 1.7e9 + 0.5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html><body>DCGM_FI_PROF_SM_ACTIVE 1</body></html>",
        "node_load1 0.5\n",
        "DCGM_FI_PROF_SM_ACTIVE 0.5\n",
        'DCGM_FI_PROF_SM_ACTIVE{gpu="0"} 0.5\n',
        'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-a"} 0.5 rubbish\n',
        'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-a"} \n',
        'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-a} 0.5\n',
        "DCGM_FI_PROF_SM_ACTIVE{UUID=GPU-a} 0.5\n",
        f'DCGM_FI_PROF_SM_ACTIVE{{UUID="GPU-a"}} 0.5 {"9" * 400}\n',
    ],
)
def test_what_is_no_page_of_dcgm_is_refused(text: str) -> None:
    """The reason is one line, without any text of the page."""
    with pytest.raises(NotDcgm) as refused:
        parse(text)

    assert re.fullmatch(r"its page [a-zA-Z ]+", str(refused.value))


@pytest.mark.parametrize("rows", [10_001, 1])
def test_a_page_that_takes_long_to_read_is_refused(rows: int) -> None:
    """Too many rows or labels would let a foreign server use up the exporter's CPU time."""
    label = 'x="' + "y" * (8200 // rows) + '"'
    row = f'DCGM_FI_PROF_SM_ACTIVE{{UUID="GPU-a",{label}}} 0.5\n'

    with pytest.raises(NotDcgm, match="more rows or labels than DCGM has"):
        parse(row * rows)
    assert set(parse(f'DCGM_FI_PROF_SM_ACTIVE{{UUID="GPU-a",x="{"y" * 8000}"}} 0.5\n')) == {"GPU-a"}


_VALUES = st.one_of(
    st.floats(0, 1), st.floats(), st.sampled_from(BLANKS), st.integers(-5, 2**70).map(float)
)
_PAGES = st.lists(
    st.builds(
        Rows,
        fields=st.dictionaries(st.sampled_from([field.number for field in FIELDS]), _VALUES),
        uuid=st.sampled_from([UUID, OTHER]),
        gpu_instance=st.none() | st.integers(0, 20),
        pods=st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=3, unique=True),
    ),
    max_size=4,
)


@given(_PAGES, st.booleans())
def test_what_is_read_is_what_prometheus_reads(gpus: list[Rows], current: bool) -> None:
    """The parser of prometheus_client reads the same values from the whole page."""
    text = page(*gpus, current=current)
    expected: dict[tuple[str, int | None], dict[str, float]] = {}
    uuids = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            uuid, instance = sample.labels["UUID"], sample.labels.get("GPU_I_ID")
            share = None if instance is None else int(instance)
            field = BY_NAME.get(re.sub("_total$", "", sample.name))
            uuids.add(uuid)
            if field is None or (share is not None and field.is_rate):
                continue
            highest = field.highest
            if 0 <= sample.value <= highest and not 2147483632 <= sample.value <= 2147483647:
                values = expected.setdefault((uuid, share), {})
                values[field.activity] = max(sample.value, values.get(field.activity, 0.0))

    found = parse(text) if uuids else {}

    assert set(found) == uuids
    assert {
        (uuid, share): {
            name: value
            for name in (field.activity for field in FIELDS)
            if (value := getattr(activity, name)) is not None
        }
        for uuid, rows in found.items()
        for share, activity in rows.activities.items()
    } == {
        key: values
        for key, values in expected.items()
        if any(not name.endswith("_bytes") for name in values)
    }


_SYNTAX = st.sampled_from('{}" \\n\n,=.0123456789eE+-_#DCGM_FI_PROFSACTIVEUUID\t\r\x85')


@given(
    st.text() | st.text(alphabet=_SYNTAX),
    st.sampled_from(
        [
            "{0}",
            'DCGM_FI_PROF_SM_ACTIVE{{UUID="GPU-a"}} 0.5\n{0}',
            'DCGM_FI_PROF_SM_ACTIVE{{UUID="GPU-a"{0}}} 0.5\nDCGM_FI_PROF_SM_ACTIVE{0} 1\n',
        ]
    ),
)
def test_any_text_is_refused_or_read(text: str, where: str) -> None:
    """No text raises anything but NotDcgm, or gives a value that cannot be."""
    try:
        found = parse(where.format(text))
    except NotDcgm:
        return
    for rows in found.values():
        for activity in rows.activities.values():
            assert activity.sm is None or 0 <= activity.sm <= HIGHEST_RATIO
