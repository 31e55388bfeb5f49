"""Advice on declared figures that differ from measured ones: it names both, appears after minutes, and ends with the
difference.
"""

import pytest

from fairlead.advice.advising import advise
from fairlead.advice.findings import Cause, HarmUnit, Level
from fairlead.advice.situations import PoolSituation, SeenFigure, SeenPredictions
from fairlead.reports.engines import Quantity
from fairlead.tables import EarlyRejectionFacts
from fairlead_testing.builders.situations import well


def figure(quantity: str, predicted: float | None, observed: float | None, **changes: float | None) -> SeenFigure:
    given: dict[str, float | None] = {"declared": None, "off_seconds": 240.0, **changes}
    return SeenFigure(quantity=quantity, predicted=predicted, observed=observed, **given)  # type: ignore[arg-type]


def with_figures(*figures: SeenFigure) -> PoolSituation:
    return well(figures=figures)


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        (
            figure(Quantity.TEXT, 4.0, 1.03),
            "default/chat's routers use 4 bytes of text a token, but engines have shown 1.03 bytes of text a token for 4 min; "
            "predicted times, and decisions that use them, are wrong by the same factor; set spec.engine.bytesPerToken.",
        ),
        (
            figure(Quantity.PREFILL, 1 / 6250, 1 / 25_000),
            "default/chat's routers use 6,250 prompt tokens/s, but engines have shown 25,000 prompt tokens/s for 4 min; "
            "predicted times, and decisions that use them, are wrong by the same factor; set spec.engine.prefillTokensPerSecond.",
        ),
        (
            figure(Quantity.DECODE, 0.02, 0.05),
            "default/chat's routers use 20 ms a decode step, but engines have shown 50 ms a decode step for 4 min; "
            "predicted times, and decisions that use them, are wrong by the same factor.",
        ),
    ],
)
def test_a_figure_that_routers_go_by_is_told_with_what_engines_show(seen: SeenFigure, sentence: str) -> None:
    (found,) = advise([with_figures(seen)])
    assert (found.cause, found.subject, found.level, found.harm.unit) == (Cause.FIGURE_OFF, seen.quantity, Level.WARN, HarmUnit.ERROR)
    assert found.sentence == sentence


def test_a_declared_figure_that_routers_have_learned_better_is_a_note() -> None:
    (found,) = advise([with_figures(figure(Quantity.TEXT, 2.0, 2.0, declared=4.0))])
    assert found.level is Level.NOTE
    assert found.sentence == (
        "default/chat declares 4 bytes of text a token, but engines have shown 2 bytes of text a token for 4 min; "
        "routers have measured the right value, but start from the wrong one after a restart; set spec.engine.bytesPerToken."
    )


@pytest.mark.parametrize(
    "seen",
    [
        figure(Quantity.TEXT, 4.0, 1.0, off_seconds=179.0),
        figure(Quantity.TEXT, 4.0, 3.0),
        figure(Quantity.TEXT, 4.0, 2.7),
        figure(Quantity.DECODE, None, 0.05),
        figure("another-quantity", None, None, declared=1.0),
    ],
)
def test_what_is_near_or_new_or_unknown_is_not_told(seen: SeenFigure) -> None:
    assert advise([with_figures(seen)]) == ()


def test_a_wrong_speed_explains_wrong_predictions() -> None:
    pool = well(
        figures=(figure(Quantity.PREFILL, 1 / 6250, 1 / 25_000),),
        early_rejection=EarlyRejectionFacts(mode="Load"),
        predictions=SeenPredictions(error=3.0, samples=200),
    )
    assert [one.cause for one in advise([pool])] == [Cause.FIGURE_OFF]
