"""The sections `spec.scaling` and `spec.ratio`: defaults, words, and how they are written."""

import pytest

from fairlead.errors import InvalidInput
from fairlead.scaling.specs import RatioMethod, RatioMode, RatioSpec, ScalingMode, ScalingSpec
from fairlead.schemas.reading import read
from fairlead.schemas.writing import written


def test_left_out_the_sections_leave_numbers_as_declared() -> None:
    assert read(ScalingSpec, {}, "spec.scaling").mode is ScalingMode.FIXED
    assert read(RatioSpec, {}, "spec.ratio").mode is RatioMode.FIXED


def test_what_is_written_is_read_back() -> None:
    document = {
        "mode": "SLO",
        "targetLoad": 0.7,
        "scaleUp": {"stabilizationWindow": "0s", "instances": 2, "percent": 50, "period": "30s", "cooldown": "1m"},
        "scaleDown": {"percent": 0},
    }
    scaling = read(ScalingSpec, document, "spec.scaling")
    assert (scaling.scale_up.instances, scaling.scale_up.cooldown_seconds, scaling.scale_down.instances) == (2, 60.0, 1)
    assert read(ScalingSpec, written(scaling), "spec.scaling") == scaling
    ratio = read(RatioSpec, {"mode": "Auto", "method": "Replace", "periods": 2, "cooldown": "5m"}, "spec.ratio")
    assert (ratio.mode, ratio.method, ratio.cooldown_seconds) == (RatioMode.AUTO, RatioMethod.REPLACE, 300.0)
    assert read(RatioSpec, written(ratio), "spec.ratio") == ratio


@pytest.mark.parametrize(
    ("document", "field"),
    [({"mode": "Auto"}, "mode"), ({"targetLoad": 0}, "targetLoad"), ({"scaleUp": {"percent": -1}}, "scaleUp.percent")],
)
def test_what_cannot_be_is_refused_by_name(document: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(ScalingSpec, document, "spec.scaling")
    assert refused.value.field == f"spec.scaling.{field}"
