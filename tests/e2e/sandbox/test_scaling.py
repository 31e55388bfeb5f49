"""Scaling by signals, live: out under load and back in, each step with its row; advice changes nothing."""

import signal
from pathlib import Path
from typing import Any

import httpx

from fairlead_testing.builders.sandbox_pools import pool, replay_arguments
from fairlead_testing.running.sandbox import RunningSandbox, result_of, until

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
