"""Models of a pool whose policy learns: their errors fall and the heuristic decides less often, until the work
changes.
"""

from datetime import datetime, timedelta

from fairlead.reports.predictors import ModelFigures
from fairlead_client.resources.predictors import PredictorModel


def learnt_models(now: datetime, count: int) -> list[PredictorModel]:
    """Return `count` models, newest first, one every four minutes, from two routers in turn."""
    return [_model(number, now - timedelta(minutes=4 * (count - number))) for number in range(count, 0, -1)]


def _model(number: int, at: datetime) -> PredictorModel:
    first = number <= 2
    strange = 140 if number > 9 else 12
    return PredictorModel(
        version=number,
        at=at,
        figures=ModelFigures(
            router=f"router-{number % 2}",
            round=(number + 1) // 2,
            samples_seen=1000 * ((number + 1) // 2),
            trained_on=min(8000, 800 * ((number + 1) // 2)),
            held_out_error_seconds=0.08 + 0.12 / number,
            spread_seconds=0.61,
            error_seconds=None if first else 0.09 + 0.15 / number + (0.05 if number > 9 else 0.0),
            formula_error_seconds=None if first else 0.31,
            mean_ttft_seconds=None if first else 0.58,
            drift=None if first else 0.12 + (0.6 if number > 9 else 0.0),
            learned_choices=0 if first else 1000 - strange,
            heuristic_choices={"cold-start": 1012} if first else {"out-of-distribution": strange},
        ),
        stored_bytes=141_312 if number > 9 else None,
    )
