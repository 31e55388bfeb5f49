"""Each field of `spec.engine`, the image and the probe rolled out under requests, with engines that start slowly: no
request fails.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import httpx
import pytest

from fairlead.engine_specs import EngineSpec
from fairlead.pools import parse_spec
from fairlead.schemas.shapes import document_name
from fairlead_operator.pod_templates import pod_template
from fairlead_testing.builders.sandbox_pools import TIME_SCALE, pool
from fairlead_testing.running.sandbox import RunningSandbox, until
from fairlead_testing.waiting import PATIENCE_SECONDS

STARTUP = "8s"
PAUSE_SECONDS = 0.5
CHANGES: dict[str, Any] = {
    "port": 8123,
    "metrics.path": "/metrics?again",
    "metrics.kvUsage": "vllm:gpu_cache_usage_perc",
    "passClientCredentials": True,
    "passPriority": True,
    "bytesPerToken": 5,
    "prefillTokensPerSecond": 7000,
    "kvCacheTokens": 900_000,
    "canary": True,
    "replaceStalledAfter": "90s",
    "kvTransfer.kind": "Nixl",
    "kvTransfer.when": "Always",
    "kvTransfer.tokensPerSecond": 100_000,
    "kvTransfer.longest": "3s",
    "kvTransfer.copies": "Pays",
    "simulated.timeScale": TIME_SCALE * 2,
    "simulated.blockSize": 32,
    "simulated.decodeStep": "25ms",
    "simulated.maxRunning": 128,
    "simulated.maxWaiting": 512,
    "simulated.startup": "7s",
}
"""A change of each field of the engine; `type` cannot be changed."""
STORE = {"kind": "SharedStore", "storeTokens": 50_000, "storeMedium": "cpu"}
"""A value for the whole section `kvTransfer`, whose fields do not all belong to one kind."""


def leaves(of: type[Any], path: str = "") -> Iterator[str]:
    hints = get_type_hints(of)
    for item in fields(of):
        inner = next((kind for kind in (hints[item.name], *get_args(hints[item.name])) if is_dataclass(kind)), None)
        name = f"{path}{document_name(item)}"
        yield from leaves(inner, f"{name}.") if isinstance(inner, type) else (name,)


def test_every_field_of_the_engine_is_rolled_out_below() -> None:
    assert {*CHANGES, "type", *(f"kvTransfer.{name}" for name in STORE)} == set(leaves(EngineSpec))


@contextmanager
def two_requests_a_second(sandbox: RunningSandbox, name: str) -> Iterator[Counter[str]]:
    """Yield the outcomes of requests: the status of each, or the kind of its failure."""
    seen: Counter[str] = Counter()
    ended = threading.Event()
    body = {"model": f"model/{name}", "messages": [{"role": "user", "content": "hello " * 50}], "max_tokens": 4}

    def ask(url: str) -> None:
        try:
            answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_SECONDS, trust_env=False)
            seen[str(answer.status_code) if answer.status_code == 200 else f"{answer.status_code} {answer.text[:300]}"] += 1
        except httpx.HTTPError as error:
            seen[repr(error)] += 1

    def send() -> None:
        threads = []
        place = 0
        while not ended.wait(PAUSE_SECONDS):
            threads.append(threading.Thread(target=ask, args=(sandbox.routers[place % len(sandbox.routers)],)))
            threads[-1].start()
            place += 1
        for thread in threads:
            thread.join()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield seen
    finally:
        ended.set()
        sender.join()


def rolled_out(sandbox: RunningSandbox, name: str, document: dict[str, Any]) -> None:
    """Apply the pool and wait until all of its instances have what it says."""
    sandbox.apply_pool(document).raise_for_status()
    generation = sandbox.pool(name)["metadata"]["generation"]

    def is_done() -> bool:
        status = sandbox.pool(name).get("status", {})
        observed = status.get("observedGeneration") == generation
        return observed and "rollout" not in status and status.get("currentRevision") == status.get("updateRevision")

    until(is_done, f"the rollout of {document['spec']}", 4 * PATIENCE_SECONDS)
    sandbox.until_ready(name, document["spec"]["replicas"])


def with_field(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    engine = {name: dict(part) if isinstance(part, dict) else part for name, part in document["spec"]["engine"].items()}
    place, *sections = engine, *path.split(".")
    for name in sections[:-1]:
        place = place.setdefault(name, {})
    place[sections[-1]] = value
    return {**document, "spec": {**document["spec"], "engine": engine}}


def slow(name: str, replicas: int) -> dict[str, Any]:
    engine = {"type": "simulated", "simulated": {"timeScale": TIME_SCALE, "startup": STARTUP}}
    return pool(name, policy="round-robin", replicas=replicas, engine=engine, slo={"ttft": "60s"})


def assert_all_served(seen: Counter[str]) -> None:
    assert set(seen) == {"200"}, seen


def test_a_port_that_changes_fails_no_request_nor_does_a_rollback(sandbox: RunningSandbox) -> None:
    document = slow("ports", 2)
    rolled_out(sandbox, "ports", document)
    with two_requests_a_second(sandbox, "ports") as seen:
        rolled_out(sandbox, "ports", with_field(document, "port", 8123))
        addresses = {
            item["address"].rpartition(":")[2]
            for item in sandbox.everything("/v1/pools/default/ports/instances")
            if item["state"] == "Serving"
        }
        rolled_out(sandbox, "ports", document)
    assert addresses == {"8123"}
    assert_all_served(seen)
    sandbox.delete_pool("ports")


def test_no_field_of_the_engine_fails_a_request_when_it_is_rolled_out(sandbox: RunningSandbox) -> None:
    document = slow("fields", 1)
    rolled_out(sandbox, "fields", document)
    with two_requests_a_second(sandbox, "fields") as seen:
        for path, value in (CHANGES | {"kvTransfer": STORE}).items():
            document = with_field(document, path, value)
            rolled_out(sandbox, "fields", document)
            assert set(seen) <= {"200"}, f"{path}: {seen}"
    assert_all_served(seen)
    sandbox.delete_pool("fields")


def test_an_image_and_a_probe_that_change_fail_no_request(sandbox: RunningSandbox) -> None:
    if not sandbox.has_own_kubernetes:
        pytest.skip("a cluster has one tag of the engine's image")
    document = slow("images", 1)
    template = pod_template(parse_spec(document["spec"]), parse_spec(document["spec"]).roles[0].name, "fairlead/engine:1")
    engine = template["spec"]["containers"][0]

    def with_engine(**changes: Any) -> dict[str, Any]:
        spec = {**template["spec"], "containers": [{**engine, **changes}]}
        return {**document, "spec": {**document["spec"], "roles": [{"name": "both", "template": {"spec": spec}}]}}

    rolled_out(sandbox, "images", with_engine())
    with two_requests_a_second(sandbox, "images") as seen:
        rolled_out(sandbox, "images", with_engine(image="fairlead/engine:2"))
        rolled_out(sandbox, "images", with_engine(readinessProbe={**engine["readinessProbe"], "periodSeconds": 2}))
    assert_all_served(seen)
    sandbox.delete_pool("images")
