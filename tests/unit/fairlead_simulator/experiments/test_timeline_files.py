"""Timelines as JSON."""

from pathlib import Path

import orjson
import pytest

from fairlead.instances import Role
from fairlead_simulator.errors import TimelineInvalid
from fairlead_simulator.experiments.timeline_files import read_timeline
from fairlead_simulator.simulation.timeline import Fail, Override, PartRouters, RestartRouters, ScaleTo


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "timeline.json"
    path.write_bytes(orjson.dumps(document))
    return path


def test_events_are_read_with_their_defaults(tmp_path: Path) -> None:
    document = [
        {"kind": "scale", "at": 60, "instances": 12, "startup_seconds": 20},
        {"kind": "scale", "at": 90, "instances": 2, "role": "decode"},
        {"kind": "fail", "at": 100.5, "instance": 3, "recovered_after_seconds": 30},
        {
            "kind": "override",
            "at": 120,
            "slo_ttft_seconds": 2,
            "early_rejection": "load",
            "policy": "ear",
            "parameters": {"migrate": False},
        },
        {"kind": "restart-routers", "at": 130},
        {"kind": "restart-routers", "at": 135, "remember": False},
        {"kind": "part-routers", "at": 140, "for_seconds": 10},
    ]
    assert read_timeline(written(tmp_path, document)) == (
        ScaleTo(at=60.0, instances=12, startup_seconds=20.0),
        ScaleTo(at=90.0, instances=2, role=Role.DECODE),
        Fail(at=100.5, instance=3, recovered_after_seconds=30.0),
        Override(at=120.0, slo_ttft_seconds=2.0, early_rejection="Load", policy="ear", parameters={"migrate": False}),
        RestartRouters(at=130.0),
        RestartRouters(at=135.0, remember=False),
        PartRouters(at=140.0, for_seconds=10.0, noticed_after_seconds=0.25),
    )


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "must be a list of events"),
        (["scale"], "event 1: must be an object"),
        ([{"kind": "grow", "at": 1}], "event 1: kind: 'grow' cannot be used; write one of scale, fail, override"),
        ([{"kind": "scale", "at": 1, "instances": 2}, {"kind": "fail", "at": 1}], "event 2: instance: is missing"),
        ([{"kind": "scale", "at": -1, "instances": 2}], "at: -1 cannot be used"),
        ([{"kind": "scale", "at": 1, "instances": 0}], "instances: 0 cannot be used; write a whole number from 1 to 10,000"),
        ([{"kind": "scale", "at": 1, "instances": 10001}], "instances: 10001 cannot be used"),
        ([{"kind": "scale", "at": 1, "instances": 2.5}], "instances: 2.5 cannot be used"),
        ([{"kind": "scale", "at": 1e12, "instances": 2}], "at: 1000000000000.0 cannot be used; write a number from 0 to 1,000,000,000"),
        ([{"kind": "scale", "at": "1", "instances": 2}], "at: '1' cannot be used"),
        ([{"at": 1}], "event 1: kind: is missing; write one of scale, fail, override"),
        ([{"kind": "scale", "at": 1, "instances": True}], "instances: True cannot be used"),
        ([{"kind": "scale", "at": 1, "instances": 2, "speed": 3}], "speed: is not a field of this kind"),
        ([{"kind": "scale", "at": 1, "instances": 2, "role": "draft"}], "role: 'draft' cannot be used"),
        ([{"kind": "override", "at": 1, "parameters": 3}], "parameters: 3 cannot be used; write an object of names and values"),
        (
            [{"kind": "override", "at": 1, "policy": "ear", "parameters": {"x": 1}}],
            "event 1: parameters.x: 1 cannot be used; remove it; the fields of policy ear are ",
        ),
        ([{"kind": "override", "at": 1, "policy": "fastest"}], "event 1: policy 'fastest' is unknown; known: cache-affinity"),
        ([{"kind": "override", "at": 1, "policy": None}], "policy: None cannot be used"),
        ([{"kind": "override", "at": 1, "slo_ttft_seconds": 0}], "slo_ttft_seconds: 0 cannot be used; write a number from 0.001"),
        ([{"kind": "part-routers", "at": 1}], "event 1: for_seconds: is missing; write a number from 0"),
        ([{"kind": "override", "at": 1}], "event 1: changes nothing; write slo_ttft_seconds, early_rejection, policy or parameters"),
        ([{"kind": "override", "at": 1, "early_rejection": "maybe"}], "early_rejection: 'maybe' cannot be used"),
    ],
)
def test_faults_name_file_event_and_field(tmp_path: Path, document: object, told: str) -> None:
    path = written(tmp_path, document)
    with pytest.raises(TimelineInvalid) as caught:
        read_timeline(path)
    assert str(caught.value).startswith(str(path))
    assert told in str(caught.value)


def test_unreadable_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(TimelineInvalid, match="cannot be read"):
        read_timeline(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("[")
    with pytest.raises(TimelineInvalid, match="is not JSON"):
        read_timeline(tmp_path / "broken.json")
