"""A drain does not wait for long answers to end; `benchmarks.pool_operations` measures its duration."""

from contextlib import ExitStack
from typing import Any

from fairlead_testing.running.long_answer import long_answer
from fairlead_testing.running.sandbox import RunningSandbox, until

TEN_MINUTES_TOKENS = 600 * 50
"""Tokens of an answer of ten minutes, from an engine whose steps take 20 ms."""
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"


def manifest(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "model": f"model/{name}",
            "replicas": 2,
            "roles": [{"name": "both", "minReplicas": 1, "maxReplicas": 4}],
            "engine": {"type": "simulated", "simulated": {"decodeStep": "20ms", "startup": "1s"}},
        },
    }


def test_a_drain_with_a_ten_minute_answer_under_way_waits_for_no_answer_to_end(sandbox: RunningSandbox) -> None:
    name = "talkative"
    assert sandbox.apply_pool(manifest(name)).status_code in {200, 201}
    sandbox.until_ready(name, 2)
    with ExitStack() as answers:
        model = f"model/{name}"
        begun = [answers.enter_context(long_answer(url, model, TEN_MINUTES_TOKENS)) for url in sandbox.routers for _ in range(2)]
        leaving = begun[0].instance
        sandbox.kubernetes(
            "PATCH", f"{PODS}/{leaving}", {"metadata": {"annotations": {"fairlead.dev/drain": "true"}}}, MERGE
        ).raise_for_status()

        def annotations() -> dict[str, str]:
            answer = sandbox.kubernetes("GET", f"{PODS}/{leaving}")
            return dict(answer.json()["metadata"]["annotations"]) if answer.status_code == 200 else {"gone": "true"}

        until(lambda: bool({"fairlead.dev/draining-since", "gone"} & annotations().keys()), "the drain begins")
        until(lambda: "gone" in annotations(), "the instance is deleted")
        had = [answer.tokens for answer in begun]
        until(lambda: all(answer.tokens > before for answer, before in zip(begun, had, strict=True)), "every answer goes on")
        assert not [answer.error for answer in begun if answer.error or answer.ended]
        reasons = {event["reason"] for event in sandbox.everything(f"/v1/pools/default/{name}/events")}
        assert "Drained" in reasons
        assert "DrainTimedOut" not in reasons
    sandbox.delete_pool(name)
