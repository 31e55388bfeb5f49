"""A release's descriptions of itself: lists of packages, notes, versions and the chart as Helm packs it."""

import io
import json
import shutil
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairlead_release import chart
from fairlead_release.contents import Package, document, packages
from fairlead_release.layouts import Layout, as_json
from fairlead_release.main import CHART, ROOT
from fairlead_release.notes import must_agree, notes

STATUS = """Package: libc6
Status: install ok installed
Version: 2.41-12

Package: gone
Status: deinstall ok config-files
Version: 1
"""
METADATA = "Metadata-Version: 2.4\nName: python_dateutil\nVersion: 4.0.0\nLicense-Expression: Apache-2.0\n\nA text.\nName: no\n"


def a_layer(layout: Layout, **members: str) -> dict[str, object]:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w:gz") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return layout.add(plain.getvalue(), "application/vnd.oci.image.layer.v1.tar+gzip")


def test_the_list_has_what_the_last_layer_left(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    first = a_layer(layout, **{"./var/lib/dpkg/status": STATUS})
    second = a_layer(layout, **{"var/lib/dpkg/status": STATUS.replace("2.41-12", "2.41-13+deb13u1")})
    third = a_layer(layout, **{"opt/fairlead/lib/python3.13/site-packages/python_dateutil-4.0.0.dist-info/METADATA": METADATA})
    manifest = layout.tag("it", layout.add(as_json({}), "config"), [first, second, third])
    found = packages(layout, manifest)
    assert found == [Package("deb", "libc6", "2.41-13+deb13u1"), Package("pypi", "python_dateutil", "4.0.0", "Apache-2.0")]
    assert [one.url for one in found] == ["pkg:deb/debian/libc6@2.41-13%2Bdeb13u1", "pkg:pypi/python-dateutil@4.0.0"]


def test_the_document_has_one_name_per_package_and_the_image_contains_them_all() -> None:
    found = document(
        "fairlead-api-amd64", "sha256:" + "a" * 64, [Package("deb", "a", "1"), Package("pypi", "a", "1")], datetime(2026, 1, 2, tzinfo=UTC)
    )
    ids = [one["SPDXID"] for one in found["packages"]]
    assert len(set(ids)) == 3
    assert {one["relatedSpdxElement"] for one in found["relationships"]} == set(ids)
    assert found["creationInfo"]["created"] == "2026-01-02T00:00:00Z"


def test_a_tagged_release_has_a_section_of_its_own() -> None:
    text = "# Changelog\n\n## [Unreleased]\n\nComing.\n\n## [1.0.0] - 2026-01-01\n\n- First.\n"
    assert notes(text, "1.0.0", tagged=True) == "- First.\n"
    assert notes(text, "1.1.0", tagged=False) == "Coming.\n"
    with pytest.raises(ValueError, match=r"has no section \[1\.1\.0\]: rename \[Unreleased\]"):
        notes(text, "1.1.0", tagged=True)
    with pytest.raises(ValueError, match=r"the section \[1\.0\.0\] is empty"):
        notes("## [1.0.0]\n", "1.0.0", tagged=True)


def test_versions_and_tag_are_one() -> None:
    must_agree("", {"a": "1", "b": "1"})
    must_agree("v1", {"a": "1", "b": "1"})
    with pytest.raises(ValueError, match="b has version 2, but the tag is v1"):
        must_agree("v1", {"a": "1", "b": "2"})
    with pytest.raises(ValueError, match="b has version 2, but another file has 1"):
        must_agree("", {"a": "1", "b": "2"})


def test_the_same_chart_gives_the_same_bytes(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "fairlead")
    assert chart.packed(CHART, 5) == chart.packed(tmp_path / "fairlead", 5)
    with tarfile.open(fileobj=io.BytesIO(chart.packed(CHART, 5))) as archive:
        assert {"fairlead/Chart.yaml", "fairlead/values.yaml", "fairlead/files/crds/inferencepools.fairlead.dev.yaml"} <= set(
            archive.getnames()
        )


def test_the_charts_artifact_names_its_version(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    found = chart.keep(layout, CHART, b"packed")
    manifest = layout.read(found["digest"])
    assert [one["mediaType"] for one in manifest["layers"]] == ["application/vnd.cncf.helm.chart.content.v1.tar+gzip"]
    assert json.loads(layout.path(manifest["config"]["digest"]).read_bytes())["name"] == "fairlead"
    assert set(layout.tags) == {chart.described(CHART)["version"]}


def test_the_workflow_pins_what_it_uses() -> None:
    lines = (ROOT / ".github" / "workflows" / "release.yml").read_text().splitlines()
    used = [line.split("uses:")[1].split() for line in lines if "uses:" in line]
    assert used
    assert all(len(one[0].split("@")[1]) == 40 for one in used)
