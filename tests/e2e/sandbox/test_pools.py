"""A pool's life under load: applied, scaled up and down, watched, deleted."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fairlead_testing.builders.sandbox_pools import pool, replay_arguments
from fairlead_testing.running.sandbox import POOLS, RunningSandbox, result_of, until
from fairlead_testing.waiting import PATIENCE_SECONDS


def test_no_request_fails_because_of_scaling_and_drained_sessions_are_migrated(sandbox: RunningSandbox, tmp_path: Path) -> None:
    sandbox.apply_pool(pool("scaled", policy="ear", replicas=4)).raise_for_status()
    sandbox.until_ready("scaled", 4)
    replay = sandbox.replay(*replay_arguments("scaled", 900, 14), "--json", str(tmp_path / "result.json"))
    until(lambda: sandbox.everything("/v1/sessions", pool="default/scaled"), "sessions bound")
    sandbox.scale_pool("scaled", 6).raise_for_status()
    sandbox.until_ready("scaled", 6)
    sandbox.scale_pool("scaled", 2).raise_for_status()
    sandbox.until_ready("scaled", 2)
    result = result_of(replay, tmp_path / "result.json")

    assert result["failed"] == 0
    assert result["sent"] == result["served"] + result["rejected"] + result["cancelled"] == 900
    assert result["rejected"] == 0

    # a session is moved by its next request: on a slow machine the replay was over before the instances left
    again = sandbox.replay(*replay_arguments("scaled", 300, 14), "--json", str(tmp_path / "again.json"))
    assert result_of(again, tmp_path / "again.json")["served"] == 300
    until(lambda: sandbox.everything("/v1/migrations", pool="default/scaled", trigger="drain"), "sessions of instances that left move")
    survivors = {item["id"] for item in sandbox.everything("/v1/pools/default/scaled/instances") if item["state"] == "Serving"}

    def held_by_survivors() -> bool:
        holders = {session["instance"] for session in sandbox.everything("/v1/sessions", pool="default/scaled")}
        return holders - {None} <= survivors

    until(held_by_survivors, "no session is held by an instance that is gone")

    def steps() -> Counter[str]:
        return Counter(event["reason"] for event in sandbox.everything("/v1/pools/default/scaled/events"))

    until(lambda: steps()["Drained"] + steps()["DrainTimedOut"] == 4, "the end of each drain is told")
    assert steps()["InstanceCreated"] >= 6
    assert steps()["Draining"] == 4
    revisions = [revision["spec"]["replicas"] for revision in sandbox.everything("/v1/pools/default/scaled/revisions")]
    assert sorted(revisions) == [2, 4, 6]
    sandbox.delete_pool("scaled")
    until(lambda: sandbox.kubernetes("GET", f"{POOLS}/scaled").status_code == 404, "pool gone")
    until(lambda: not sandbox.kubernetes("GET", "/api/v1/pods?labelSelector=fairlead.dev/pool=scaled").json()["items"], "pods gone")


def test_cache_aware_policies_hit_far_more_often_than_round_robin(sandbox: RunningSandbox, tmp_path: Path) -> None:
    """Ten requests at a time and an SLO that every machine meets.

    Policies that prefer a cache miss to a missed SLO have no reason for it, however slow this machine is. `ear` knows
    to which instance both routers sent a session. Each router's `dualmap` knows only its own requests: when a session's
    turns alternate between routers, one of two instances has the prefix.
    """
    shares_of_ideal = {}
    for policy in ("round-robin", "dualmap", "ear"):
        name = f"hits-{policy}"
        sandbox.apply_pool(pool(name, policy=policy, replicas=6, slo={"ttft": "10m"})).raise_for_status()
        sandbox.until_ready(name, 6)
        output = tmp_path / f"{policy}.json"
        ten_at_a_time = replay_arguments(name, 300, 1000)
        result = result_of(sandbox.replay(*ten_at_a_time, "--max-in-flight", "10", "--json", str(output)), output)
        assert result["sent"] == result["served"] == 300, (policy, result)
        decisions = sandbox.everything("/v1/decisions", pool=f"default/{name}")
        assert "slo-overloaded" not in {decision["reason"] for decision in decisions}
        shares_of_ideal[policy] = result["token_hit_rate"] / result["ideal_token_hit_rate"]
        sandbox.delete_pool(name)
    assert shares_of_ideal["round-robin"] < 0.55 < shares_of_ideal["dualmap"], shares_of_ideal
    assert shares_of_ideal["ear"] > 0.7, shares_of_ideal


def test_overload_is_refused_early_with_reason_and_moves_are_explained(sandbox: RunningSandbox, tmp_path: Path) -> None:
    sandbox.apply_pool(pool("overload", policy="dualmap", replicas=3, early_rejection="Load")).raise_for_status()
    sandbox.until_ready("overload", 3)
    output = tmp_path / "result.json"
    result = result_of(sandbox.replay(*replay_arguments("overload", 600, 40), "--json", str(output), "--cancel-share", "0.02"), output)
    assert result["sent"] == result["served"] + result["rejected"] + result["cancelled"] == 600
    assert result["rejected"] > 0
    assert result["rejections"]["rejected-predicted-ttft"] > 0

    def reported() -> bool:
        return bool(sandbox.ask("/v1/rejections", pool="default/overload")["total"] == result["rejected"])

    until(reported, "every refusal in the database")
    migrations = sandbox.everything("/v1/migrations", pool="default/overload")
    assert migrations
    assert all(item["trigger"] for item in migrations)
    decisions = sandbox.everything("/v1/decisions", pool="default/overload")
    assert decisions
    for decision in decisions:
        assert decision["chosen"] in {candidate["instance"] for candidate in decision["candidates"]}
    sandbox.delete_pool("overload")


def test_policy_slo_and_early_rejection_change_live_without_touching_instances(sandbox: RunningSandbox) -> None:
    sandbox.apply_pool(pool("live", policy="round-robin", replicas=2)).raise_for_status()
    sandbox.until_ready("live", 2)
    before = {item["id"] for item in sandbox.everything("/v1/pools/default/live/instances")}
    changed = pool("live", policy="dualmap", replicas=2, early_rejection="Load", slo={"ttft": "700ms"})
    sandbox.apply_pool(changed).raise_for_status()

    def taken_over() -> bool:
        answer = sandbox.ask("/v1/pools/default/live")["pool"]
        return bool(answer["policy"] == "dualmap" and answer["ttft_slo_seconds"] == 0.7)

    until(taken_over, "the new policy in force")
    assert {item["id"] for item in sandbox.everything("/v1/pools/default/live/instances")} == before
    assert [version["ttft_seconds"] for version in sandbox.everything("/v1/pools/default/live/slo")] == [0.7, 0.25]
    sandbox.delete_pool("live")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed; the same calls are tested over HTTP")
def test_kubectl_applies_shows_and_scales_a_pool(sandbox: RunningSandbox, tmp_path: Path) -> None:
    import yaml

    manifest = tmp_path / "pool.yaml"
    manifest.write_text(yaml.safe_dump(pool("by-kubectl", replicas=1)))

    def kubectl(*arguments: str) -> str:
        command = ["kubectl", "--kubeconfig", str(sandbox.kubeconfig), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True).stdout

    assert "created" in kubectl("apply", "-f", str(manifest))
    assert "unchanged" in kubectl("apply", "-f", str(manifest))
    kubectl("wait", "--for=condition=Ready", "fpool/by-kubectl", f"--timeout={PATIENCE_SECONDS:g}s")
    header, row = kubectl("get", "fpool", "by-kubectl").splitlines()
    assert header.split() == ["NAME", "READY", "DESIRED", "SERVING", "POLICY", "SLO", "AGE"]
    assert row.split()[:6] == ["by-kubectl", "True", "1", "1", "dualmap", "250ms"]
    kubectl("scale", "fpool/by-kubectl", "--replicas=2")
    sandbox.until_ready("by-kubectl", 2)
    assert "ScalingUp" in kubectl("describe", "fpool", "by-kubectl")
    pod = kubectl("get", "pods", "-l", "fairlead.dev/pool=by-kubectl", "-o", "name").splitlines()[0]
    if sandbox.has_own_kubernetes:  # a cluster's API would ask the kubelet, which serves no logs
        assert kubectl("logs", pod)
    sandbox.delete_pool("by-kubectl")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed; the same calls are tested over HTTP")
def test_kubectl_scales_one_role_of_a_pool_of_prefill_and_decode(sandbox: RunningSandbox) -> None:
    roles = [{"name": "prefill", "minReplicas": 2, "maxReplicas": 3}, {"name": "decode", "replicas": 2}]
    sandbox.apply_pool(pool("split", policy="static-pd", replicas=1, roles=roles)).raise_for_status()

    def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "--kubeconfig", str(sandbox.kubeconfig), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)

    kubectl("wait", "--for=condition=Ready", "fpool/split", f"--timeout={PATIENCE_SECONDS:g}s").check_returncode()

    def rows() -> list[list[str]]:
        return [line.split()[:-1] for line in kubectl("get", "fprole").stdout.splitlines()]

    header = ["NAME", "POOL", "ROLE", "DESIRED", "SERVING", "REPLICAS", "PINNED"]
    decode = ["split-decode", "split", "decode", "2", "2", "2", "2"]
    prefill = ["split-prefill", "split", "prefill", "2", "2", "2"]
    until(lambda: rows() == [header, decode, prefill], "both roles have their object, and only one is pinned")
    answer = sandbox.ask("/v1/pools/default/split")
    assert (answer["pool"]["desired"], sorted(item["role"] for item in answer["instances"])) == (4, ["decode"] * 2 + ["prefill"] * 2)
    assert kubectl("scale", "fprole/split-prefill", "--replicas=9").stdout.strip() == "inferencepoolrole.fairlead.dev/split-prefill scaled"
    until(lambda: "ScaleBounded" in kubectl("describe", "fpool", "split").stdout, "the bound is told")
    serving = "jsonpath={.status.roles[?(@.name=='prefill')].ready}"
    until(lambda: kubectl("get", "fpool", "split", "-o", serving).stdout == "3", "the role has as many as it may")
    refused = kubectl("scale", "fprole/split-decode", "--replicas=3")
    assert "the InferencePool declares the replicas of this role" in refused.stderr
    sandbox.delete_pool("split")
    until(lambda: kubectl("get", "fprole").stdout == "", "the roles' objects go with their pool")
