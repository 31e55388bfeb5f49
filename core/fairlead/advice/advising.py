"""Computes all findings about pools and ranks them by harm, the most harmful first."""

from collections.abc import Iterable

from fairlead.advice import (
    budgets,
    engines,
    figures_off,
    host_memory,
    hot_instances,
    lateness,
    long_prompts,
    losing_moves,
    predictions,
    ratios,
    refusals,
    routers_apart,
    saturation,
    scaling_advice,
    silence,
    unmet_conditions,
)
from fairlead.advice.findings import Finding, HarmUnit, Level
from fairlead.advice.situations import PoolSituation

FINDERS = (
    saturation.find,
    long_prompts.find,
    refusals.find,
    lateness.find,
    hot_instances.find,
    ratios.find,
    losing_moves.find,
    engines.find,
    predictions.find,
    figures_off.find,
    host_memory.find,
    budgets.find,
    silence.find,
    routers_apart.find,
    unmet_conditions.find,
    scaling_advice.find,
)

_LEVELS = {level: place for place, level in enumerate(Level)}
_UNITS = {unit: place for place, unit in enumerate(HarmUnit)}


def advise(pools: Iterable[PoolSituation]) -> tuple[Finding, ...]:
    """Return all findings in the order of `rank`. A finding is left out if its symptom is explained by another finding
    of the same pool.
    """
    found: list[Finding] = []
    for pool in pools:
        of_pool = [finding for find in FINDERS for finding in find(pool)]
        explained = frozenset[str]().union(*(one.explains for one in of_pool))
        found += [one for one in of_pool if one.symptom not in explained]
    return tuple(sorted(found, key=rank))


def rank(finding: Finding) -> tuple[int, int, float, str, str, str]:
    """Return a sort key for a finding: first its level, then the unit of its harm, then the size of its harm, largest
    first.

    The level comes first because a large pool that meets its objectives may miss more requests than a small pool that
    breaks them.
    """
    return (
        _LEVELS[finding.level],
        _UNITS[finding.harm.unit],
        -finding.harm.amount,
        finding.pool,
        finding.cause.value,
        finding.subject,
    )
