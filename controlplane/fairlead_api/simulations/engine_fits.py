"""What a fitted engine must be for a pool to be simulated by it. Pure."""

from dataclasses import fields
from math import isfinite

from fairlead.errors import InvalidInput
from fairlead_client.resources.engine_fits import MOST_POINTS, EngineFit, FitAccuracy

LONGEST_SOURCE = 400


def check_fit(fit: EngineFit) -> None:
    """Raises InvalidInput for a fit that cannot be simulated, or that says what no fit does."""
    fault = fit.costs.fault()
    if fault is not None:
        raise InvalidInput(f"costs.{fault[0]}", fault[1], fault[2])
    if not 1 <= len(fit.source) <= LONGEST_SOURCE or not fit.source.isprintable():
        raise InvalidInput("source", fit.source[:80], f"write what it was fitted to, in 1 to {LONGEST_SOURCE} characters")
    for name, one in (("ttft", fit.ttft), ("tpot", fit.tpot)):
        _check_accuracy(name, one)
    for name, points in (("ttft_points", fit.ttft_points), ("tpot_points", fit.tpot_points)):
        if len(points) > MOST_POINTS or not all(
            isfinite(value) and 0 <= value < 1e6 for one in points for value in (one.real, one.modelled)
        ):
            raise InvalidInput(name, len(points), f"write at most {MOST_POINTS} pairs of seconds")
    for name in ("engines", "requests", "fitted", "contradicting", "at_edges"):
        if not 0 <= getattr(fit, name) < 2**31:
            raise InvalidInput(name, getattr(fit, name), "write a number of requests or engines")


def _check_accuracy(name: str, one: FitAccuracy) -> None:
    for field in fields(one):
        value = getattr(one, field.name)
        if field.name == "correlation":
            if value is not None and not -1.001 <= value <= 1.001:
                raise InvalidInput(f"{name}.correlation", value, "write a number from -1 to 1, or null")
        elif not (isfinite(value) and 0 <= value < 2**31):
            raise InvalidInput(f"{name}.{field.name}", value, "write a number from 0 on")
