"""The collector over random ownership graphs, and the expiry of events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from processkube.kubernetes_api.collecting.deleting import DeleteOptions, delete
from processkube.kubernetes_api.collecting.expiry import EVENT_LIFETIME, sweep
from processkube.kubernetes_api.collecting.garbage import GarbageCollector
from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.kinds.registry import Registry
from processkube.kubernetes_api.storing.store import Store
from processkube.kubernetes_api.writing.resources import Resources, WriteOptions
from processkube.testing.examples import examples

OPTIONS = WriteOptions(field_manager="test")


class ManualClock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def make(clock: ManualClock) -> Resources:
    resources = Resources(Store(Path(":memory:")), Registry(), clock, random.Random(1))
    resources.create(kind(resources, "namespaces"), "", {"metadata": {"name": "d"}}, OPTIONS)
    return resources


def kind(resources: Resources, plural: str) -> ResourceKind:
    found = resources.registry.find("", "v1", plural)
    assert found is not None
    return found


@examples(60)
@given(
    graph=st.lists(st.sets(st.integers(0, 7), max_size=2), min_size=1, max_size=8),
    victims=st.sets(st.integers(0, 7), min_size=1, max_size=3),
    policy=st.sampled_from(["Background", "Foreground"]),
)
def test_exactly_what_can_no_longer_be_reached_from_a_root_is_collected(graph: list[set[int]], victims: set[int], policy: str) -> None:
    """Object i is owned by the earlier objects of graph[i]; those without owners are roots."""
    owners = [{owner for owner in chosen if owner < index} for index, chosen in enumerate(graph)]
    victims = {victim for victim in victims if victim < len(owners)}

    async def scenario() -> set[int]:
        resources = make(ManualClock())
        collector = GarbageCollector(resources)
        task = asyncio.create_task(collector.run())
        maps = kind(resources, "configmaps")
        uids: list[str] = []
        for index, chosen in enumerate(owners):
            references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"c{one}", "uid": uids[one]} for one in sorted(chosen)]
            body = {"metadata": {"name": f"c{index}", "ownerReferences": references}}
            uids.append(resources.create(maps, "d", body, OPTIONS).object["metadata"]["uid"])
        for victim in sorted(victims):
            if resources.store.get("configmaps", "d", f"c{victim}") is not None:
                delete(resources, maps, "d", f"c{victim}", DeleteOptions(propagation=policy))
        await collector.settled()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return {int(one.name[1:]) for one in resources.store.list("configmaps")}

    alive: set[int] = set()
    for index, chosen in enumerate(owners):
        if index not in victims and (not chosen or chosen & alive):
            alive.add(index)
    assert asyncio.run(scenario()) == alive


@asynccontextmanager
async def collecting(resources: Resources) -> AsyncIterator[GarbageCollector]:
    collector = GarbageCollector(resources)
    task = asyncio.create_task(collector.run())
    yield collector
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def add(resources: Resources, plural: str, namespace: str, name: str, *owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    body = {"metadata": {"name": name, "ownerReferences": list(owners), **metadata}}
    return resources.create(kind(resources, plural), namespace, body, OPTIONS).object


def reference(owner: dict[str, Any], **other: Any) -> dict[str, Any]:
    """Return a reference to an owner, possibly with a fault."""
    metadata = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    return {**named, "blockOwnerDeletion": True, **other}


async def test_an_owner_is_known_by_all_that_a_reference_says() -> None:
    resources = make(ManualClock())
    add(resources, "namespaces", "", "other")
    owner = add(resources, "configmaps", "d", "owner")
    async with collecting(resources) as collector:
        add(resources, "configmaps", "d", "right", reference(owner))
        add(resources, "configmaps", "d", "wrong-name", reference(owner, name="x"))
        add(resources, "configmaps", "d", "wrong-kind", reference(owner, kind="Secret"))
        add(resources, "configmaps", "d", "wrong-group", reference(owner, apiVersion="apps/v1"))
        add(resources, "configmaps", "other", "elsewhere", reference(owner))
        of_namespace = add(resources, "namespaces", "", "of-namespaced", reference(owner))
        await collector.settled()
        assert [one.name for one in resources.store.list("configmaps")] == ["owner", "right", "wrong-group"]
        delete(resources, kind(resources, "configmaps"), "d", "owner", DeleteOptions())
        await collector.settled()
        assert [one.name for one in resources.store.list("configmaps")] == ["wrong-group"]  # nobody serves that kind
        # A cluster-scoped object cannot have an owner in a namespace, so nobody can say that this one is gone.
        assert resources.store.by_uid(of_namespace["metadata"]["uid"]) is not None


async def test_a_foreground_deletion_begins_with_the_last_of_a_chain() -> None:
    resources = make(ManualClock())
    maps = kind(resources, "configmaps")
    first = add(resources, "configmaps", "d", "first")
    second = add(resources, "configmaps", "d", "second", reference(first))
    add(resources, "configmaps", "d", "third", reference(second), finalizers=["x.dev/hold"])
    async with collecting(resources) as collector:
        delete(resources, maps, "d", "first", DeleteOptions(propagation="Foreground"))
        await collector.settled()
        assert [one.name for one in resources.store.list("configmaps")] == ["first", "second", "third"]
        resources.update(maps, "d", "third", lambda item: {**item, "metadata": {**item["metadata"], "finalizers": []}}, OPTIONS)
        await collector.settled()
        assert resources.store.list("configmaps") == []


async def test_a_foreground_deletion_round_in_a_circle_ends() -> None:
    resources = make(ManualClock())
    maps = kind(resources, "configmaps")
    first = add(resources, "configmaps", "d", "first")
    second = add(resources, "configmaps", "d", "second", reference(first))
    owners = {"ownerReferences": [reference(second)]}
    resources.update(maps, "d", "first", lambda item: {**item, "metadata": {**item["metadata"], **owners}}, OPTIONS)
    async with collecting(resources) as collector:
        delete(resources, maps, "d", "first", DeleteOptions(propagation="Foreground"))
        await collector.settled()
        assert resources.store.list("configmaps") == []


async def test_deleting_a_namespace_while_collecting_empties_it() -> None:
    resources = make(ManualClock())
    collector = GarbageCollector(resources)
    task = asyncio.create_task(collector.run())
    for name in ("a", "b"):
        resources.create(kind(resources, "configmaps"), "d", {"metadata": {"name": name}}, OPTIONS)
    delete(resources, kind(resources, "namespaces"), "", "d", DeleteOptions())
    await collector.settled()
    assert resources.store.count("configmaps") == 0
    assert resources.store.get("namespaces", "", "d") is None
    task.cancel()


def test_events_run_out_an_hour_after_they_were_last_written() -> None:
    clock = ManualClock()
    resources = make(clock)
    events = kind(resources, "events")
    for name in ("old", "counted"):
        resources.create(events, "d", {"metadata": {"name": name}, "involvedObject": {"namespace": "d"}, "count": 1}, OPTIONS)
    clock.now += EVENT_LIFETIME / 2
    resources.update(events, "d", "counted", lambda event: {**event, "count": 2}, OPTIONS)
    clock.now += EVENT_LIFETIME / 2 + timedelta(seconds=1)
    assert sweep(resources) == 1
    assert [one.name for one in resources.store.list("events")] == ["counted"]
    clock.now += EVENT_LIFETIME
    assert sweep(resources) == 1
