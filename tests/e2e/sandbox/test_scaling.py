"""Scaling by signals with real processes: out under load and back in, each step recorded; advice changes nothing."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from fairlead_testing.builders.sandbox_pools import pool, replay_arguments
from fairlead_testing.running.sandbox import RunningSandbox, result_of, until
from fairlead_testing.waiting import PATIENCE_SECONDS

ROLES = [{"name": "both", "minReplicas": 1, "maxReplicas": 5}]
SCALING: dict[str, Any] = {
    "period": "2s",
    "scaleUp": {"stabilizationWindow": "2s", "instances": 2, "period": "5s"},
    "scaleDown": {"stabilizationWindow": "8s", "instances": 4, "percent": 100, "period": "2s", "cooldown": "2s"},
}


def test_a_surplus_instance_sleeps_under_load_and_is_woken_before_one_is_made(sandbox: RunningSandbox, tmp_path: Path) -> None:
    def of(replicas: int) -> dict[str, Any]:
        return pool("naps", replicas=replicas, roles=[{"name": "both", "maxReplicas": 3, "warm": {"asleep": 1}}])

    def states() -> dict[str, str]:
        return {one["id"]: one["state"] for one in sandbox.everything("/v1/pools/default/naps/instances")}

    sandbox.apply_pool(of(2)).raise_for_status()
    sandbox.until_ready("naps", 2)
    output = tmp_path / "naps.json"
    replay = sandbox.replay(*replay_arguments("naps", 400, 6), "--loop", "--json", str(output))
    made = set(states())
    sandbox.apply_pool(of(1)).raise_for_status()
    until(lambda: sorted(states().values()) == ["Asleep", "Serving"], "one sleeps and one serves")
    [sleeper] = [one for one in sandbox.everything("/v1/pools/default/naps/instances") if one["state"] == "Asleep"]
    assert httpx.get(f"http://{sleeper['address']}/is_sleeping", trust_env=False).json() == {"is_sleeping": True}
    assert sandbox.ask("/v1/pools/default/naps")["pool"]["asleep"] == 1
    sandbox.apply_pool(of(2)).raise_for_status()
    until(lambda: sorted(states().values()) == ["Serving", "Serving"], "both serve again")
    assert set(states()) == made, "none was made"
    replay.send_signal(signal.SIGINT)
    assert result_of(replay, output, code=130)["failed"] == 0
    sandbox.delete_pool("naps")


def test_two_pools_take_turns_on_one_device_and_answer_every_request(sandbox: RunningSandbox) -> None:
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "shared"}, "spec": {"devices": devices}}
    sandbox.kubernetes("POST", claims, claim).raise_for_status()
    found = {"request": "gpu", "driver": "gpu.example.com", "pool": "node", "device": "gpu-0"}
    given = {"status": {"allocation": {"devices": {"results": [found]}}}}  # as a scheduler does with a driver
    sandbox.kubernetes("PATCH", f"{claims}/shared/status", given, "application/merge-patch+json").raise_for_status()
    turns = {"asleep": 1, "turns": {"claims": ["shared"], "atLeast": "1s"}}
    roles = [{"name": "both", "maxReplicas": 1, "warm": turns}]
    for name in ("east", "west"):
        document = pool(name, replicas=1, roles=roles, rollout={"maxSurge": 0, "maxUnavailable": 1})
        sandbox.apply_pool(document).raise_for_status()

    def awake() -> list[str]:
        found = sandbox.kubernetes("GET", "/api/v1/namespaces/default/pods").json()["items"]
        theirs = [one["metadata"] for one in found if one["metadata"].get("labels", {}).get("fairlead.dev/pool") in {"east", "west"}]
        return [one["name"] for one in theirs if one["annotations"]["fairlead.dev/state"] != "Asleep"]

    def answered(name: str) -> int:
        body = {"model": f"model/{name}", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
        return httpx.post(f"{sandbox.routers[0]}/v1/chat/completions", json=body, timeout=PATIENCE_SECONDS, trust_env=False).status_code

    for name in ("east", "west"):
        until(lambda name=name: answered(name) != 404, f"the router knows {name}")  # type: ignore[misc]  # read at once
    most, pods = 0, set[str]()
    with ThreadPoolExecutor(1) as asking:
        for name in ("east", "west", "east", "west"):
            asked = asking.submit(answered, name)
            while not asked.done():
                seen = awake()
                most, pods = max(most, len(seen)), pods | set(seen)
                time.sleep(0.1)
            assert asked.result() == 200
    assert (most, len(pods)) == (1, 2), "never two, and each was made once"
    for name in ("east", "west"):
        sandbox.delete_pool(name)
    sandbox.kubernetes("DELETE", f"{claims}/shared").raise_for_status()


def test_a_pool_grows_under_load_and_shrinks_after_it_and_advice_only_says_so(sandbox: RunningSandbox, tmp_path: Path) -> None:
    for name, mode in (("follows", "SLO"), ("advised", "Advise")):
        document = pool(name, replicas=1, roles=ROLES, scaling={**SCALING, "mode": mode})
        sandbox.apply_pool(document).raise_for_status()
    replays = {}
    for name, requests in (("follows", 400), ("advised", 400)):
        sandbox.until_ready(name, 1)
        output = tmp_path / f"{name}.json"
        replays[name] = (sandbox.replay(*replay_arguments(name, requests, 12), "--loop", "--json", str(output)), output)

    def rows(name: str) -> list[dict[str, Any]]:
        return sandbox.everything("/v1/scaling-decisions", pool=f"default/{name}")

    def wanted(name: str) -> int:
        path = f"/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepools/{name}"
        [role] = sandbox.kubernetes("GET", path).json()["status"]["roles"]
        return int(role["desired"])

    until(lambda: wanted("follows") > 1, "more instances under load")
    until(lambda: rows("advised"), "advice")
    for replay, _ in replays.values():
        replay.send_signal(signal.SIGINT)
    results = {name: result_of(*replay, code=130) for name, replay in replays.items()}
    assert results["follows"]["failed"] == 0
    until(lambda: wanted("follows") == 1, "one instance again")
    until(lambda: len(sandbox.everything("/v1/pools/default/follows/instances")) == 1, "the others gone")

    def steps() -> list[dict[str, Any]]:
        events = sandbox.everything("/v1/pools/default/follows/events")
        return [event for event in events if event["reason"] in {"ScalingUp", "ScalingDown"}]

    def applied() -> list[dict[str, Any]]:
        return [row for row in rows("follows") if row["verdict"] == "Applied"]

    until(lambda: len(applied()) == len(steps()), "each step has its row")
    assert {event["reason"] for event in steps()} == {"ScalingUp", "ScalingDown"}
    told = [event["message"] for event in steps()]
    for row in applied():
        assert row["mode"] == "SLO"
        assert row["signals"][0]["prompt_tokens_per_second"] >= 0
        assert any(row["reason"] in message for message in told), row["reason"]

    assert {row["verdict"] for row in rows("advised")} == {"Advised"}
    assert wanted("advised") == 1
    assert "ScalingUp" not in {event["reason"] for event in sandbox.everything("/v1/pools/default/advised/events")}
    for name in ("follows", "advised"):
        sandbox.delete_pool(name)
