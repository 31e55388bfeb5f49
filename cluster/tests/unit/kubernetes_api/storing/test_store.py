"""The store: durable, ordered, resumable."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processkube.kubernetes_api.kinds.kinds import ResourceKind, builtin_kinds
from processkube.kubernetes_api.objects.selectors import parse_field_selector, parse_label_selector, selects
from processkube.kubernetes_api.storing.store import HISTORY_LENGTH, Store
from processkube.kubernetes_api.storing.watches import Watch, WatchRequest
from processkube.testing.examples import examples


def item(name: str, app: str = "a", value: int = 0) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "d", "uid": f"uid-{name}", "labels": {"app": app}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": str(value)}}


def config_maps() -> ResourceKind:
    return next(kind for kind in builtin_kinds() if kind.plural == "configmaps")


operations = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "remove"]), st.sampled_from("xy")), min_size=1, max_size=25)


def perform(store: Store, chosen: list[tuple[str, str, str]]) -> list[int]:
    """Run the operations; return the resource version after each."""
    versions = []
    for number, (name, operation, app) in enumerate(chosen):
        existing = store.get("configmaps", "d", name)
        if operation == "put":
            store.put("configmaps", "d", name, item(name, app, number))
        elif existing is not None:
            store.remove("configmaps", "d", name)
        versions.append(store.version)
    return versions


def state(store: Store) -> dict[str, Any]:
    return {one.name: one.object for one in store.list("configmaps")}


async def watched(store: Store, version: int, selector: str) -> list[dict[str, Any]]:
    request = WatchRequest(
        kind=config_maps(),
        resource_version=str(version),
        selects=selects(parse_label_selector(selector), parse_field_selector("", ())),
        timeout_seconds=0,
    )
    lines = [line async for line in Watch(store, request).lines()]
    return [json.loads(line) for line in b"".join(lines).splitlines()]


@examples(60)
@given(operations, st.data())
def test_a_watch_resumed_anywhere_leads_to_the_present(chosen: list[tuple[str, str, str]], data: st.DataObject) -> None:
    store = Store(Path(":memory:"))
    cut = data.draw(st.integers(0, len(chosen)))
    selector = data.draw(st.sampled_from(["", "app=x"]))
    perform(store, chosen[:cut])
    wanted = parse_label_selector(selector)
    known = {name: one for name, one in state(store).items() if wanted.matches(one["metadata"]["labels"])}
    start = store.version
    perform(store, chosen[cut:])
    previous = start
    for event in asyncio.run(watched(store, start, selector)):
        name, version = event["object"]["metadata"]["name"], int(event["object"]["metadata"]["resourceVersion"])
        assert version > previous
        previous = version
        assert (event["type"] == "ADDED") == (name not in known)
        if event["type"] == "DELETED":
            del known[name]
        else:
            known[name] = event["object"]
    assert known == {name: one for name, one in state(store).items() if wanted.matches(one["metadata"]["labels"])}
    store.close()


@examples(25)
@given(chosen=operations)
def test_a_reopened_store_is_the_same_store(tmp_path_factory: pytest.TempPathFactory, chosen: list[tuple[str, str, str]]) -> None:
    path = tmp_path_factory.mktemp("store") / "objects.sqlite"
    store = Store(path)
    perform(store, chosen)
    before, version = state(store), store.version
    # Not closed: a second connection sees exactly what was committed, as after a kill.
    again = Store(path)
    assert (state(again), again.version, again.oldest_resumable("configmaps")) == (before, version, version)
    again.close()
    store.close()


@given(operations)
@examples(50)
def test_resource_versions_only_grow(chosen: list[tuple[str, str, str]]) -> None:
    store = Store(Path(":memory:"))
    versions = perform(store, chosen)
    assert versions == sorted(versions)
    assert all(int(one["metadata"]["resourceVersion"]) <= store.version for one in state(store).values())
    store.close()


@given(operations)
@examples(50)
def test_a_list_by_label_is_the_list_of_those_that_have_it(chosen: list[tuple[str, str, str]]) -> None:
    store = Store(Path(":memory:"))
    perform(store, chosen)
    for app in "xyz":
        having = [one.name for one in store.list("configmaps") if one.object["metadata"]["labels"]["app"] == app]
        assert [one.name for one in store.list("configmaps", "d", ("app", app))] == having
        assert store.list("configmaps", "elsewhere", ("app", app)) == []
    store.close()


def test_history_has_an_end_and_older_watches_are_gone() -> None:
    store = Store(Path(":memory:"))
    start = store.version
    for number in range(HISTORY_LENGTH + 1):
        store.put("configmaps", "d", "a", item("a", value=number))
    assert store.oldest_resumable("configmaps") == start + 1
    assert [event["object"]["code"] for event in asyncio.run(watched(store, start, ""))] == [410]
    assert len(asyncio.run(watched(store, start + 1, ""))) == HISTORY_LENGTH
    assert store.oldest_resumable("secrets") == start
    store.close()


def test_listeners_hear_of_a_change_after_it_is_durable(tmp_path: Path) -> None:
    path = tmp_path / "objects.sqlite"
    store = Store(path)
    heard: list[bool] = []

    def listen(_: object) -> None:
        other = Store(path)
        heard.append(other.get("configmaps", "d", "a") is not None)
        other.close()

    stop = store.subscribe(listen)
    store.put("configmaps", "d", "a", item("a"))
    stop()
    store.put("configmaps", "d", "b", item("b"))
    assert heard == [True]
    store.close()


def test_a_listener_that_fails_keeps_the_change_from_nobody(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(Path(":memory:"))
    heard: list[str] = []

    def fail(_: object) -> None:
        raise KeyError("in")

    store.subscribe(fail)
    store.subscribe(lambda change: heard.append(change.now.name))
    store.put("configmaps", "d", "a", item("a"))
    assert heard == ["a"]
    assert "a listener failed over a change" in caplog.text
    store.close()
