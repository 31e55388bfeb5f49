"""Lists, selectors, pages, tables, and watches that miss nothing."""

from __future__ import annotations

import base64
import json
import threading
import time
from itertools import islice
from typing import Any

import httpx
import pytest

from processkube.testing.waiting import PATIENCE_SECONDS

MERGE = {"Content-Type": "application/merge-patch+json"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def make(api: httpx.Client, core: str, name: str, **labels: str) -> dict[str, Any]:
    answer: dict[str, Any] = api.post(f"{core}/configmaps", json={"metadata": {"name": name, "labels": labels}}).json()
    return answer


def label(api: httpx.Client, core: str, name: str, **labels: str | None) -> None:
    body = json.dumps({"metadata": {"labels": labels}})
    assert api.patch(f"{core}/configmaps/{name}", content=body, headers=MERGE).status_code == 200


def watch(api: httpx.Client, path: str, **query: str) -> list[dict[str, Any]]:
    """Return all events of a watch, which the server ends after `timeoutSeconds`."""
    with api.stream("GET", path, params={"watch": "true", "timeoutSeconds": "1", **query}) as answer:
        assert answer.status_code == 200
        return [json.loads(line) for line in answer.iter_lines() if line]


def names(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=a", ["one"]),
        ("app==b,tier!=x", ["two"]),
        ("app in (a, b)", ["one", "two"]),
        ("app notin (a)", ["three", "two"]),
        ("!app", ["three"]),
        ("tier", ["one"]),
        ("app", ["one", "two"]),
    ],
)
def test_label_selectors_choose(api: httpx.Client, core: str, selector: str, expected: list[str]) -> None:
    make(api, core, "one", app="a", tier="x")
    make(api, core, "two", app="b")
    make(api, core, "three")
    items = api.get(f"{core}/configmaps", params={"labelSelector": selector}).json()["items"]
    assert [item["metadata"]["name"] for item in items] == expected


def test_field_selectors_choose_and_name_what_they_cannot(api: httpx.Client, core: str) -> None:
    pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    api.post(f"{core}/pods", json={**pod, "metadata": {"name": "free"}})
    api.post(f"{core}/pods", json={"metadata": {"name": "placed"}, "spec": {**pod["spec"], "nodeName": "n1"}})
    chosen = api.get(f"{core}/pods", params={"fieldSelector": "spec.nodeName=n1,status.phase=Pending"}).json()["items"]
    assert [item["metadata"]["name"] for item in chosen] == ["placed"]
    chosen = api.get(f"{core}/pods", params={"fieldSelector": "spec.nodeName!=n1"}).json()["items"]
    assert [item["metadata"]["name"] for item in chosen] == ["free"]
    answer = api.get(f"{core}/pods", params={"fieldSelector": "spec.colour=red"})
    assert (answer.status_code, answer.json()["message"]) == (400, "field label not supported: spec.colour")
    assert api.get(f"{core}/pods", params={"labelSelector": "a==(b"}).status_code == 400


def test_pages_cover_everything_once_at_one_resource_version(api: httpx.Client, core: str) -> None:
    for number in range(5):
        make(api, core, f"c{number}")
    found, versions, token = [], set(), ""
    while True:
        page = api.get(f"{core}/configmaps", params={"limit": "2", **({"continue": token} if token else {})}).json()
        found += [item["metadata"]["name"] for item in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
        make(api, core, f"zz{len(found)}")  # later than the first page, so a watch from its version reports it
        if len(found) == 2:
            label(api, core, "c4", changed="yes")
            api.delete(f"{core}/configmaps/c3")
        if not token or len(found) > 20:
            break
    assert found == [f"c{number}" for number in range(5)]  # as they were when the first page was made
    (version,) = versions
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    then = api.get(f"{core}/configmaps", params=exact).json()
    assert [(one["metadata"]["name"], one["metadata"]["labels"]) for one in then["items"]] == [(name, {}) for name in found]
    assert then["metadata"]["resourceVersion"] == version
    assert api.get(f"{core}/configmaps", params={"continue": "nonsense"}).status_code == 400


def test_an_expired_page_offers_to_go_on_with_what_is_there_now(api: httpx.Client, core: str, namespace: str) -> None:
    old = base64.urlsafe_b64encode(json.dumps([1, namespace, "b"]).encode()).decode()
    for name in ("a", "b", "c", "d"):
        make(api, core, name)
    answer = api.get(f"{core}/configmaps", params={"continue": old})
    assert (answer.status_code, answer.json()["reason"]) == (410, "Expired")
    rest = api.get(f"{core}/configmaps", params={"continue": answer.json()["metadata"]["continue"]}).json()
    assert [one["metadata"]["name"] for one in rest["items"]] == ["c", "d"]
    exact = {"resourceVersion": "1", "resourceVersionMatch": "Exact"}
    assert api.get(f"{core}/configmaps", params=exact).json()["message"] == "The resourceVersion for the provided list is too old."


def test_a_list_says_what_it_is(api: httpx.Client, widgets: str) -> None:
    answer = api.get(widgets).json()
    assert (answer["kind"], answer["apiVersion"]) == ("WidgetList", "acme.dev/v1")
    assert answer["metadata"]["resourceVersion"].isdigit()


def test_tables_show_the_printer_columns(api: httpx.Client, widgets: str, core: str) -> None:
    api.post(widgets, json={"metadata": {"name": "a"}, "spec": {"image": "x:1"}})
    status = {"status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]}}
    api.patch(f"{widgets}/a/status", content=json.dumps(status), headers=MERGE)
    table = api.get(widgets, headers=TABLE).json()
    assert [(column["name"], column["priority"]) for column in table["columnDefinitions"]] == [
        ("Name", 0),
        ("Replicas", 0),
        ("Ready", 0),
        ("Image", 1),
        ("Age", 0),
    ]
    cells = table["rows"][0]["cells"]
    assert cells[:4] == ["a", 1, "True", "x:1"]
    assert cells[4].endswith("s")
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    api.post(f"{core}/pods", json={"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    assert api.get(f"{core}/pods", headers=TABLE).json()["rows"][0]["cells"][:4] == ["p", "0/1", "Pending", "0"]


def test_the_items_of_a_list_say_what_they_are_only_where_the_kind_is_a_custom_one(api: httpx.Client, core: str, widgets: str) -> None:
    map_of = {"data": {"k": "v"}}
    api.post(f"{core}/configmaps", json={"metadata": {"name": "a"}, **map_of})
    api.post(f"{core}/configmaps", json={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, **map_of})
    api.post(f"{core}/configmaps", json={"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, **map_of})
    for item in api.get(f"{core}/configmaps").json()["items"]:
        one = api.get(f"{core}/configmaps/{item['metadata']['name']}").json()
        assert {"apiVersion": "v1", "kind": "ConfigMap", **item} == one
        assert sorted(item) == ["data", "metadata"]
    api.post(widgets, json={"metadata": {"name": "a"}, "spec": {"image": "x"}})
    assert api.get(widgets).json()["items"] == [api.get(f"{widgets}/a").json()]


def test_metadata_can_be_had_alone(api: httpx.Client, core: str) -> None:
    made = make(api, core, "a")
    headers = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    partial = api.get(f"{core}/configmaps/a", headers=headers).json()
    assert (partial["kind"], partial["metadata"]) == ("PartialObjectMetadata", made["metadata"])
    headers = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    assert api.get(f"{core}/configmaps", headers=headers).json()["items"][0]["kind"] == "PartialObjectMetadata"


def test_a_watch_without_a_version_begins_with_what_exists(api: httpx.Client, core: str) -> None:
    make(api, core, "a")
    assert names(watch(api, f"{core}/configmaps")) == [("ADDED", "a")]


def test_a_watch_resumes_after_the_version_it_names(api: httpx.Client, core: str) -> None:
    made = make(api, core, "a")
    label(api, core, "a", x="1")
    api.delete(f"{core}/configmaps/a")
    events = watch(api, f"{core}/configmaps", resourceVersion=made["metadata"]["resourceVersion"])
    assert names(events) == [("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)
    assert versions[0] > int(made["metadata"]["resourceVersion"])


def test_a_watch_sees_changes_while_it_runs(api: httpx.Client, core: str) -> None:
    path = f"{core}/configmaps"
    version = api.get(path).json()["metadata"]["resourceVersion"]
    params = {"watch": "true", "timeoutSeconds": f"{PATIENCE_SECONDS:g}", "resourceVersion": version}
    with api.stream("GET", path, params=params) as answer:
        lines = answer.iter_lines()
        for name in ("a", "b"):
            make(api, core, name)
            assert json.loads(next(lines))["object"]["metadata"]["name"] == name


def test_selectors_turn_changes_into_arrivals_and_departures(api: httpx.Client, core: str) -> None:
    made = make(api, core, "a", app="x")
    version = made["metadata"]["resourceVersion"]
    label(api, core, "a", app="y")
    label(api, core, "a", app="x")
    label(api, core, "a", more="z")
    make(api, core, "b", app="q")
    events = watch(api, f"{core}/configmaps", resourceVersion=version, labelSelector="app=x")
    assert names(events) == [("DELETED", "a"), ("ADDED", "a"), ("MODIFIED", "a")]
    left = events[0]["object"]["metadata"]
    assert left["labels"] == {"app": "x"}
    assert int(version) < int(left["resourceVersion"]) < int(events[1]["object"]["metadata"]["resourceVersion"])


def test_a_deleted_object_is_shown_as_it_was_stored_last(api: httpx.Client, core: str, widgets: str) -> None:
    made = api.post(widgets, json={"metadata": {"name": "a", "finalizers": ["acme.dev/a"]}, "spec": {"image": "x"}}).json()
    marked = api.delete(f"{widgets}/a").json()
    label = {"metadata": {"finalizers": None, "labels": {"last": "word"}}}
    api.patch(f"{widgets}/a", content=json.dumps(label), headers=MERGE)
    api.post(widgets, json={"metadata": {"name": "b"}, "spec": {"image": "x"}})
    api.delete(f"{widgets}/b")
    events = watch(api, widgets, resourceVersion=made["metadata"]["resourceVersion"])
    assert names(events) == [("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b"), ("DELETED", "b")]
    without_version = [{**event["object"], "metadata": {**event["object"]["metadata"], "resourceVersion": ""}} for event in events]
    assert without_version[0] == without_version[1]
    assert without_version[1]["metadata"]["finalizers"] == marked["metadata"]["finalizers"] == ["acme.dev/a"]
    assert without_version[2] == without_version[3]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


def test_a_pod_is_marked_also_when_it_goes_at_once(api: httpx.Client, core: str) -> None:
    made = api.post(f"{core}/pods", json={"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}).json()
    api.delete(f"{core}/pods/p")
    events = watch(api, f"{core}/pods", resourceVersion=made["metadata"]["resourceVersion"])
    assert names(events) == [("MODIFIED", "p"), ("DELETED", "p")]
    assert [event["object"]["metadata"]["deletionGracePeriodSeconds"] for event in events] == [0, 0]


def test_initial_events_end_with_a_bookmark(api: httpx.Client, core: str) -> None:
    make(api, core, "a")
    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    events = watch(api, f"{core}/configmaps", **query)
    assert [event["type"] for event in events][:2] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ({"watch": "true", "sendInitialEvents": "true"}, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ({"watch": "true", "resourceVersionMatch": "NotOlderThan"}, "forbidden for watch unless sendInitialEvents is provided"),
        ({"watch": "true", "resourceVersion": "nonsense"}, 'resourceVersion: Invalid value: "nonsense"'),
        ({"resourceVersionMatch": "Exact"}, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, '"exact" is forbidden for resourceVersion "0"'),
        ({"resourceVersionMatch": "Later", "resourceVersion": "1"}, 'Unsupported value: "Later"'),
        ({"sendInitialEvents": "true"}, "sendInitialEvents is forbidden for list"),
    ],
)
def test_options_of_lists_and_watches_that_do_not_go_together_are_refused(
    api: httpx.Client, core: str, query: dict[str, str], fault: str
) -> None:
    answer = api.get(f"{core}/configmaps", params=query)
    assert answer.status_code == 422
    assert fault in answer.json()["message"]


@pytest.mark.parametrize("version", ["1", "999999999"])
def test_a_version_that_cannot_be_resumed_is_gone(api: httpx.Client, core: str, version: str) -> None:
    events = watch(api, f"{core}/configmaps", resourceVersion=version)
    assert [(event["type"], event["object"]["code"], event["object"]["reason"]) for event in events] == [("ERROR", 410, "Expired")]


def test_a_watch_ends_when_its_time_is_over(api: httpx.Client, core: str) -> None:
    began = time.monotonic()
    watch(api, f"{core}/configmaps", allowWatchBookmarks="true")
    assert time.monotonic() - began > 0.9


def test_a_watch_whose_time_is_0_takes_the_usual_time(api: httpx.Client, core: str) -> None:
    with api.stream("GET", f"{core}/configmaps", params={"watch": "true", "timeoutSeconds": "0"}) as answer:
        make(api, core, "a")
        assert json.loads(next(answer.iter_lines()))["object"]["metadata"]["name"] == "a"


def test_what_remains_of_a_list_is_told_where_nothing_selects(api: httpx.Client, core: str) -> None:
    for name in ("a", "b", "c"):
        make(api, core, name, app="x")
    assert api.get(f"{core}/configmaps", params={"limit": "1"}).json()["metadata"]["remainingItemCount"] == 2
    page = api.get(f"{core}/configmaps", params={"limit": "1", "labelSelector": "app=x"}).json()["metadata"]
    assert ("continue" in page, "remainingItemCount" in page) == (True, False)


def test_a_watch_may_speak_in_tables(api: httpx.Client, core: str) -> None:
    make(api, core, "a")
    with api.stream("GET", f"{core}/configmaps", params={"watch": "true", "timeoutSeconds": "1"}, headers=TABLE) as answer:
        events = [json.loads(line) for line in answer.iter_lines() if line]
    assert [(event["object"]["kind"], event["object"]["rows"][0]["cells"][:2]) for event in events] == [("Table", ["a", 0])]


def test_many_watches_see_every_change_in_order(api: httpx.Client, core: str) -> None:
    version = api.get(f"{core}/configmaps").json()["metadata"]["resourceVersion"]
    seen: list[list[tuple[str, str]]] = []

    def follow() -> None:
        params = {"watch": "true", "resourceVersion": version, "timeoutSeconds": f"{PATIENCE_SECONDS:g}"}
        with api.stream("GET", f"{core}/configmaps", params=params) as answer:
            seen.append(names([json.loads(line) for line in islice(filter(None, answer.iter_lines()), 30)]))

    threads = [threading.Thread(target=follow) for _ in range(5)]
    for thread in threads:
        thread.start()
    for number in range(30):
        make(api, core, f"c{number:02}")
    for thread in threads:
        thread.join()
    assert seen == [[("ADDED", f"c{number:02}") for number in range(30)]] * 5
