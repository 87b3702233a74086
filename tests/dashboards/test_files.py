# SPDX-License-Identifier: Apache-2.0
"""The committed JSON is what the generator writes, in both flavours."""

from __future__ import annotations

import json
import re
import sys

import pytest
import yaml

from tests.dashboards.models import (
    AT_SCALE,
    NAMES,
    PROVISIONED,
    ROOT,
    SHARED,
    each_page,
    every_page,
    load,
    panels,
)

PROVIDERS = ROOT / "deploy" / "grafana" / "provisioning" / "dashboards" / "dashboards.yml"


@pytest.mark.filterwarnings("ignore:Prefer using dashboardv2")  # its JSON is not yet shared
@pytest.mark.skipif(sys.version_info < (3, 11), reason="the models of Grafana need Python 3.11")
def test_the_committed_files_are_what_the_generator_writes() -> None:
    """After a change in dashboards/, `make dashboards` was run; nothing was edited by hand."""
    from dashboards.write import files

    written = files()
    committed = {
        path for folder in (PROVISIONED, AT_SCALE, SHARED) for path in folder.glob("*.json")
    }

    assert committed == set(written)
    for path, text in written.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run make dashboards"


def test_the_list_of_pages_is_complete() -> None:
    """No dashboard escapes the other tests."""
    assert sorted(path.stem for path in PROVISIONED.glob("*.json")) == list(NAMES)


@each_page
def test_pages_at_scale_stand_in_for_the_others(name: str) -> None:
    """Under the same uid and title, by which links and alerts know them; that of one GPU is the
    same."""
    page, at_scale = load(name), load(f"at-scale/{name}")

    assert [p.stem for p in sorted(AT_SCALE.glob("*.json"))] == list(NAMES)
    assert (at_scale["uid"], at_scale["title"]) == (page["uid"], page["title"])
    assert (at_scale == page) == (name == "gpu")


@each_page
def test_both_flavours_show_the_same(name: str) -> None:
    """The one for grafana.com asks for the data source; panels and variables are the same."""
    provisioned, shared = load(name), load(name, SHARED)

    assert shared["panels"] == provisioned["panels"]
    assert [v["name"] for v in shared["templating"]["list"]] == [
        v["name"] for v in provisioned["templating"]["list"]
    ]
    (source,) = shared["__inputs"]
    assert (source["type"], source["pluginId"]) == ("datasource", "prometheus")
    assert shared["templating"]["list"][0]["current"]["value"] == f"${{{source['name']}}}"
    kinds = {panel["type"] for panel in panels(shared)}
    assert {need["id"] for need in shared["__requires"] if need["type"] == "panel"} == kinds


@every_page
def test_provisioned_files_have_no_inputs(name: str) -> None:
    """Grafana does not fill them in when it reads a folder of files."""
    model = load(name)

    assert "__inputs" not in model
    assert "${DS_" not in json.dumps(model)
    assert model.get("id") is None
    assert model["editable"] is False


def test_uids_are_fixed_and_differ() -> None:
    """Links and alerts name them; a folder may not have the uid of a dashboard."""
    providers = yaml.safe_load(PROVIDERS.read_text(encoding="utf-8"))["providers"]
    uids = [load(name)["uid"] for name in NAMES] + [one["folderUid"] for one in providers]

    assert len(set(uids)) == len(uids)
    assert all(8 <= len(uid) <= 40 and uid.startswith("roofline-") for uid in uids)


def test_the_documentation_names_every_dashboard() -> None:
    """Title and uid, in one row."""
    text = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \|.*\| `(roofline-[a-z]+)` \|$", text, re.MULTILINE)

    assert sorted(rows) == sorted((load(name)["title"], load(name)["uid"]) for name in NAMES)
