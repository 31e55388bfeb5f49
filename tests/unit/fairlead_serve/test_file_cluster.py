"""Files in place of the Kubernetes API: read, patched, and left in the user's ownership."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.infra.object_marks import PLAN, owner_of
from fairlead_api.plans.kinds.engines import engines_patch, weighed_engine
from fairlead_api.plans.merge_patches import inverse, merged
from fairlead_api.plans.objects import Target
from fairlead_api.pods.reading import Pods
from fairlead_api.pools.fixed_engines import check_possible, engines_file
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_process.policies import installed_policies
from fairlead_serve.file_cluster import FileCluster
from fairlead_serve.pool_files import digest
from fairlead_serve.pool_reports import wanted_engines
from fairlead_serve.state_files import Memory, StateFiles, own_pool_file

POOL = PoolKey(namespace="default", name="engines")
TARGET, ENGINE = Target.of_pool(POOL), Target.of_instance(POOL, "a-8000")
CONTENT = "engines: [{url: 'http://a:8000'}]\nslo: {ttft: 900ms}\n"


def files_in(root: Path, place: Path | None = None) -> StateFiles:
    files = StateFiles(root=root, pool_file=place or own_pool_file(root))
    files.pool_file.write_text(CONTENT)
    files.write_memory(Memory(name="engines", uid="0" * 32, model="m"))
    return files


async def test_a_change_is_written_into_our_file_with_who_made_it(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    cluster = FileCluster(files, installed_policies())
    before = await cluster.read(TARGET)
    assert owner_of(before.labels, before.annotations, before.managers) is None
    tried = await cluster.patch(TARGET, {"slo": {"ttft": "2s"}}, before.resource_version, {}, dry_run=True)
    assert tried.spec["slo"]["ttft"] == "2s"
    assert files.pool_file.read_text() == CONTENT
    after = await cluster.patch(TARGET, {"slo": {"ttft": "2s"}}, before.resource_version, {PLAN: "p1"}, dry_run=False)
    assert yaml.safe_load(files.pool_file.read_text()) == {"engines": [{"url": "http://a:8000"}], "slo": {"ttft": "2s"}}
    assert after.annotations[PLAN] == "p1"
    assert files.read_marks().written == digest(files.pool_file.read_text())
    assert (await cluster.read(TARGET)) == after
    assert after.generation != before.generation


async def test_a_change_of_what_was_edited_meanwhile_is_refused(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    cluster = FileCluster(files, installed_policies())
    before = await cluster.read(TARGET)
    files.pool_file.write_text(CONTENT + "earlyRejection: {mode: Load}\n")
    with pytest.raises(Conflict):
        await cluster.patch(TARGET, {"slo": {"ttft": "2s"}}, before.resource_version, {}, dry_run=False)


async def test_a_value_that_the_file_could_not_have_is_refused(tmp_path: Path) -> None:
    cluster = FileCluster(files_in(tmp_path), installed_policies())
    before = await cluster.read(TARGET)
    with pytest.raises(InvalidInput, match=r"slo\.ttft"):
        await cluster.patch(TARGET, {"slo": {"ttft": "soon"}}, before.resource_version, {}, dry_run=True)
    with pytest.raises(InvalidInput, match=r"engine\.type.*keep vllm"):
        await cluster.patch(TARGET, {"engine": {"type": "sglang"}}, before.resource_version, {}, dry_run=True)


async def test_an_engine_is_added_and_taken_out_again_in_the_file(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    cluster = FileCluster(files, installed_policies())
    target = Target.of_engines(POOL)
    before = await cluster.read(target)
    assert before.spec == {"engines": {"a-8000": {"url": "http://a:8000"}}}
    change = engines_patch({"action": "add", "url": "http://b:9000/v1", "name": "big", "weight": 2}, before.spec["engines"])
    tried = await cluster.patch(target, change, before.resource_version, {}, dry_run=True)
    assert tried.spec["engines"]["big"] == {"url": "http://b:9000", "weight": 2}
    assert files.pool_file.read_text() == CONTENT
    after = await cluster.patch(target, change, before.resource_version, {PLAN: "p1"}, dry_run=False)
    assert yaml.safe_load(files.pool_file.read_text())["engines"] == [
        {"url": "http://a:8000"},
        {"name": "big", "url": "http://b:9000", "weight": 2},
    ]
    assert (await cluster.read(target)) == after
    assert (await cluster.read(TARGET)).generation == (await FileCluster(files, installed_policies()).read(TARGET)).generation
    heavier = await cluster.patch(target, weighed_engine("big", 0.5), after.resource_version, {}, dry_run=False)
    assert heavier.spec["engines"]["big"] == {"url": "http://b:9000", "weight": 0.5}
    after = await cluster.patch(target, inverse(after.spec, weighed_engine("big", 0.5)), heavier.resource_version, {}, dry_run=False)
    back = inverse(before.spec, change)
    await cluster.patch(target, back, after.resource_version, {}, dry_run=False)
    assert yaml.safe_load(files.pool_file.read_text()) == yaml.safe_load(CONTENT)
    assert (await cluster.read(target)).generation == before.generation


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"action": "add", "url": "https://b:9000"}, r"fields\.url.*TLS"),
        ({"action": "add", "url": "http://a:8000"}, r"fields\.name.*no other engine"),
        ({"action": "add", "url": "http://b:1", "name": "b", "colour": "red"}, r"fields\.colour"),
        ({"action": "remove", "name": "b"}, r"fields\.name.*a-8000"),
        ({"action": "remove", "name": "a-8000"}, "last engine"),
        ({"action": "remove", "name": ["a-8000"]}, r"fields\.name.*a-8000"),
        ({"action": ["remove"], "name": "a-8000"}, r"fields\.action.*add or remove"),
        ({"action": "move"}, r"fields\.action.*add or remove"),
    ],
)
def test_what_cannot_be_done_to_the_engines_is_refused_with_the_field(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        engines_patch(fields, {"a-8000": {"url": "http://a:8000"}})


async def test_an_engine_that_is_not_a_pod_has_no_log_and_no_events(tmp_path: Path) -> None:
    pods = Pods(FileCluster(files_in(tmp_path), installed_policies()))
    with pytest.raises(NotFound):
        await pods.log(POOL, "a-8000", 10, "", None, previous=False)
    assert (await pods.events(POOL, "a-8000")).events == []


async def test_the_users_file_owns_its_pool(tmp_path: Path) -> None:
    place = tmp_path / "mine.yaml"
    found = await FileCluster(files_in(tmp_path, place), installed_policies()).read(TARGET)
    assert owner_of(found.labels, found.annotations, found.managers) == f"File {place}"
    assert engines_file(found.annotations) == str(place)


async def test_a_mark_drains_an_engine_and_taking_it_off_ends_that(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    cluster = FileCluster(files, installed_policies())
    for value, drained in (("true", "Requested"), (None, None)):
        found = await cluster.read(ENGINE)
        await cluster.patch(ENGINE, {"fairlead.dev/drain": value}, found.resource_version, {}, dry_run=False)
        [engine] = wanted_engines(files.read_pool(installed_policies()), files.read_marks())
        assert engine.drained == drained


@pytest.mark.parametrize("target", [Target.of_instance(POOL, "b-8000"), Target.of_pool(PoolKey(namespace="default", name="other"))])
async def test_what_is_not_in_the_file_is_not_there(target: Target, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await FileCluster(files_in(tmp_path), installed_policies()).read(target)


def test_a_pool_of_pods_has_no_list_of_engines() -> None:
    with pytest.raises(Conflict) as refused:
        check_possible(PlanKind.ENGINES, {}, {})
    assert refused.value.code == "engines-are-pods"


OF_FILES = [kind for kind in PlanKind if kind.facts.inputs and "fields" in kind.facts.takes and not kind.facts.file_refusal]


@pytest.mark.parametrize("kind", [kind for kind in OF_FILES if kind not in {PlanKind.ENGINES, PlanKind.WEIGHT}])
async def test_a_change_of_a_section_that_is_possible_is_one_that_the_file_takes(kind: PlanKind, tmp_path: Path) -> None:
    files = files_in(tmp_path)
    cluster = FileCluster(files, installed_policies())
    before, fields = await cluster.read(TARGET), kind.facts.example["fields"]
    change = {kind.facts.section: fields} if kind.facts.section else fields
    await cluster.patch(TARGET, change, before.resource_version, {}, dry_run=False)
    document = yaml.safe_load(files.pool_file.read_text())
    assert merged(document, change) == document, "the file has every field of the change"


@pytest.mark.parametrize("kind", list(PlanKind))
async def test_what_needs_instances_made_or_ended_is_refused_with_the_reason(kind: PlanKind, tmp_path: Path) -> None:
    annotations = (await FileCluster(files_in(tmp_path), installed_policies()).read(TARGET)).annotations
    possible = {
        "engines",
        "policy",
        "slo",
        "early-rejection",
        "ring",
        "cordon",
        "uncordon",
        "drain",
        "undrain",
        "migrations",
        "move",
        "unpin",
        "weight",
        "revert",
        "sessions",
        "draining",
        "fairness",
        "classes",
    }
    if kind is not PlanKind.ENGINES:
        check_possible(kind, {}, {})
    if kind in possible:
        check_possible(kind, {}, annotations)
        return
    with pytest.raises(Conflict) as refused:
        check_possible(kind, {}, annotations)
    assert refused.value.code == "engines-are-fixed"
    assert "pool.yaml" in str(refused.value)
