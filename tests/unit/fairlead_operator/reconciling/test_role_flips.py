"""Role flips on a fake cluster: the same pod continues in the other role."""

from typing import Any

from fairlead_testing.worlds.operator_stages import VirtualStage

FLIP = {"method": "RoleFlip"}


def split(prefill: int, decode: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "prefill", "replicas": prefill, **more}, {"name": "decode", "replicas": decode}]


def roles_of(stage: VirtualStage) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["labels"]["llm-d.ai/role"] for pod in stage.pods()}


async def test_a_flip_drains_an_instance_relabels_its_pod_and_lets_it_serve() -> None:
    stage = VirtualStage()
    stage.apply(replicas=1, roles=split(2, 1), ratio=FLIP)
    await stage.settle()
    before = roles_of(stage)
    stage.api.in_flight = dict.fromkeys(before, 1)
    stage.apply(replicas=1, roles=split(1, 2), ratio=FLIP)
    for _ in range(4):
        stage.now += 1
        await stage.round()
    [marked] = [pod for pod in stage.pods() if "fairlead.dev/flip-to" in pod["metadata"]["annotations"]]
    assert marked["metadata"]["annotations"]["fairlead.dev/state"] == "Draining"
    assert marked["metadata"]["labels"]["llm-d.ai/role"] == "prefill"
    stage.restart()
    stage.api.in_flight = {}
    await stage.settle()
    after = roles_of(stage)
    assert after.keys() == before.keys(), "the same pods"
    assert sorted(after.values()) == ["decode", "decode", "prefill"]
    assert after[marked["metadata"]["name"]] == "decode"
    annotations = next(pod for pod in stage.pods() if pod["metadata"]["name"] == marked["metadata"]["name"])["metadata"]["annotations"]
    assert "fairlead.dev/flip-to" not in annotations
    assert "fairlead.dev/draining-since" not in annotations
    assert stage.reasons().count("RoleFlipped") == 1
    assert stage.condition("Ready")["status"] == "True"


async def test_flips_between_different_templates_are_refused_by_the_field_that_differs() -> None:
    stage = VirtualStage()
    template = {"spec": {"containers": [{"name": "engine", "image": "vllm:2"}]}}
    stage.apply(replicas=1, roles=split(1, 1, template=template), ratio={"mode": "Auto", "method": "RoleFlip"})
    await stage.round()
    await stage.round()
    assert stage.condition("Ready")["reason"] == "InvalidSpec"
    assert stage.condition("Ready")["message"].startswith("spec.ratio.method")
    assert "spec" in stage.condition("Ready")["message"]
    window = {"name": "day", "cron": "0 8 * * *", "duration": "10h", "ratio": {"mode": "Auto"}}
    stage.apply(replicas=1, roles=split(1, 1, template=template), scaling={"schedules": [window]})
    await stage.round()
    assert stage.condition("Ready")["message"].startswith("spec.scaling.schedules[0].ratio.method")
    stage.apply(replicas=1, roles=split(1, 1, template=template), ratio={"mode": "Auto", "method": "Replace"})
    await stage.settle()
    assert stage.condition("Ready")["status"] == "True"
