"""Scaling rules from a file: written as in a pool's spec, with a message that names each fault."""

from pathlib import Path

import pytest

from fairlead.scaling.specs import RatioMode, ScalingMode
from fairlead_simulator.errors import ScalingInvalid
from fairlead_simulator.experiments.choices import read_scaling


def written(folder: Path, text: str) -> Path:
    path = folder / "scaling.json"
    path.write_text(text)
    return path


def test_sections_are_read_as_a_pool_declares_them(tmp_path: Path) -> None:
    path = written(
        tmp_path, '{"scaling": {"mode": "SLO"}, "ratio": {"mode": "Auto", "cooldown": "5m"}, "maxReplicas": 12, "startup": "1m"}'
    )
    rules = read_scaling(path, split=True)
    assert (rules.scaling.mode, rules.ratio.mode, rules.ratio.cooldown_seconds) == (ScalingMode.SLO, RatioMode.AUTO, 300.0)
    assert (rules.max_replicas, rules.startup_seconds) == (12, 60.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "is not JSON"),
        ("[]", "write an object with fields"),
        ('{"scaling": {"mode": "Sometimes"}}', "scaling.mode: 'Sometimes' cannot be used; write one of Fixed, SLO, Advise"),
        ('{"minReplicas": 9, "maxReplicas": 3}', "minReplicas must not be greater than maxReplicas"),
        ('{"ratio": {"mode": "Auto"}}', "needs prefill and decode instances; give --prefill-instances and --decode-instances"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ScalingInvalid, match=said.replace("(", r"\(")) as refused:
        read_scaling(written(tmp_path, text), split=False)
    assert "\n" not in str(refused.value) and "scaling.json" in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScalingInvalid, match=r"none\.json: cannot be read"):
        read_scaling(tmp_path / "none.json", split=False)
