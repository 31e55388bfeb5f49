"""Live changes, refused specs, outages and crashes, with the operator as a process."""

import subprocess
import sys

from fairlead_testing.running.operator_process import Stage, eventually
from fairlead_testing.waiting import PATIENCE_SECONDS


def test_routing_slo_and_early_rejection_change_without_touching_an_instance(stage: Stage) -> None:
    stage.apply("tuned", routing={"policy": "round-robin"})
    stage.settle("tuned", 2)
    before = stage.names("tuned")
    stage.edit("tuned", {"routing": {"policy": "least-loaded"}, "slo": {"ttft": "2s"}, "earlyRejection": {"mode": "Load"}})
    eventually(
        lambda: {"PolicyChanged", "SLOChanged", "EarlyRejectionChanged"} <= stage.kubernetes_events("tuned"), "the three changes are told"
    )
    eventually(
        lambda: (state := stage.told_state("default/tuned")) and state.spec["routing"]["policy"] == "least-loaded",
        "the API has the new spec",
    )
    stage.settle("tuned", 2)
    assert stage.names("tuned") == before
    eventually(lambda: "EarlyRejectionChanged" in stage.told_reasons(), "the history is delivered")
    assert stage.told_reasons().count("PolicyChanged") == 1


def test_a_spec_refused_beyond_the_schema_changes_nothing_that_serves(stage: Stage) -> None:
    stage.apply("careful", replicas=2)
    stage.settle("careful", 2)
    before = stage.names("careful")
    stage.edit("careful", {"replicas": 5, "routing": {"policy": "dualmap", "parameters": {"slo_fraction": "most"}}})
    eventually(lambda: stage.condition("careful", "Ready").get("reason") == "InvalidRouting", "the pool says what is wrong")
    message = stage.condition("careful", "Ready")["message"]
    assert "spec.routing.parameters.slo_fraction" in message
    assert "'most'" in message
    assert "last good spec stays in force" in message
    assert stage.status("careful")["specInForce"]["spec"]["replicas"] == 2
    state = stage.told_state("default/careful")
    assert state is not None
    assert state.problem is not None
    assert "slo_fraction" in state.problem

    lost = min(before)
    stage.client.call("DELETE", f"/api/v1/namespaces/default/pods/{lost}", {})
    eventually(lambda: lost not in stage.names("careful") and len(stage.names("careful")) == 2, "what was in force is still kept up")

    stage.edit("careful", {"replicas": 3, "routing": {"parameters": {"slo_fraction": None}}})
    stage.settle("careful", 3)
    assert stage.told_reasons().count("SpecRefused") == 1


def test_a_new_template_replaces_instances_one_at_a_time(stage: Stage) -> None:
    stage.apply("rolling", replicas=2)
    stage.settle("rolling", 2)
    before = stage.names("rolling")
    stage.edit("rolling", {"engine": {"simulated": {"decodeStep": "30ms"}}})
    most = 0

    def replaced() -> bool:
        nonlocal most
        names = stage.names("rolling")
        most = max(most, len([pod for pod in stage.pods("rolling") if not pod["metadata"].get("deletionTimestamp")]))
        return not names & before

    eventually(replaced, "all are new")
    stage.settle("rolling", 2)
    assert most == 3
    [container] = stage.pods("rolling")[0]["spec"]["containers"]
    assert container["args"][container["args"].index("--decode-step-ms") + 1] == "30"


def test_an_operator_killed_in_the_middle_of_a_scale_down_goes_on_after_its_restart(stage: Stage) -> None:
    stage.apply("resumed", replicas=4)
    stage.settle("resumed", 4)
    stage.api.state.pretence.in_flight = dict.fromkeys(stage.names("resumed"), 1)
    stage.edit("resumed", {"replicas": 2})
    marked = eventually(lambda: names if len(names := stage.marked("resumed")) == 2 else None, "two drain")
    stage.operator.kill()
    stage.api.state.pretence.in_flight = {}
    assert len(stage.pods("resumed")) == 4
    stage.operator.start()
    stage.settle("resumed", 2)
    assert not stage.names("resumed") & marked, "the same two went"
    for name in stage.names("resumed"):
        assert stage.told_transitions(name)[-2:] == ["Warming", "Serving"], "a restart makes nobody warm up again"


def test_without_the_control_api_pods_are_kept_up_and_drains_wait(stage: Stage) -> None:
    stage.apply("isolated", replicas=2)
    stage.settle("isolated", 2)
    gone, kept = sorted(stage.names("isolated"))
    stage.api.up = False
    eventually(lambda: stage.condition("isolated", "ControlPlaneReachable").get("status") == "False", "the outage is shown")
    stage.client.call("DELETE", f"/api/v1/namespaces/default/pods/{gone}", {})
    eventually(lambda: gone not in stage.names("isolated") and len(stage.names("isolated")) == 2, "a deleted pod is replaced")
    replacement = next(iter(stage.names("isolated") - {kept}))
    stage.edit("isolated", {"replicas": 1})
    eventually(lambda: stage.status("isolated").get("specInForce", {}).get("spec", {}).get("replicas") == 1, "the new wish is seen")
    eventually(lambda: stage.condition("isolated", "Progressing").get("observedGeneration") == 2, "and worked on")
    assert stage.marked("isolated") == set(), "no drain begins blindly"

    stage.api.state.pretence.sessions = {kept: 9}
    stage.api.up = True
    stage.settle("isolated", 1)
    assert stage.names("isolated") == {kept}
    assert replacement not in stage.names("isolated")
    eventually(lambda: "ScalingDown" in stage.told_reasons(), "what happened meanwhile is told afterwards")


def test_settings_that_cannot_be_used_end_the_process_with_one_line() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "fairlead_operator.main"],
        env={"FAIRLEAD_API_URL": "nowhere", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "fairlead operator: FAIRLEAD_API_URL: 'nowhere' cannot be used; write an address such as http://127.0.0.1:8080 "
        "without user and password, or several with commas between them"
    ]


def test_a_stopped_operator_ends_well_and_leaves_everything_serving(stage: Stage) -> None:
    stage.apply("parked", replicas=2)
    stage.settle("parked", 2)
    before = stage.names("parked")
    assert stage.operator.stop() == 0
    assert stage.names("parked") == before
    assert stage.marked("parked") == set()
    stage.operator.start()
    stage.settle("parked", 2)
    assert stage.names("parked") == before


def test_a_typo_in_the_template_is_named_and_makes_no_instance(stage: Stage) -> None:
    container = {"name": "engine", "image": "vllm:1", "prots": [{"containerPort": 8000}]}
    stage.apply("misspelt", replicas=1, roles=[{"name": "both", "template": {"spec": {"containers": [container]}}}])
    eventually(lambda: "prots" in stage.condition("misspelt", "Degraded").get("message", ""), "the field is named")
    assert stage.names("misspelt") == set()
    stage.edit("misspelt", {"roles": [{"name": "both", "template": {"spec": {"containers": [{"name": "engine", "image": "vllm:1"}]}}}]})
    stage.settle("misspelt", 1)
