"""`…/canary`: the steps of a pool's canaries with the judge's verdicts and estimates over time, and the buttons that
pause a canary and resume it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from starlette.responses import Response

from fairlead.canaries.verdicts import StepVerdict
from fairlead_client.resources.canaries import Canary, CanaryEstimate, CanaryLook, CanaryStep
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit

WORDS = {
    StepVerdict.GO: ("goes on", "good"),
    StepVerdict.WAIT: ("waits", "info"),
    StepVerdict.BACK: ("goes back", "bad"),
}
"""The text of each verdict, and the level of its badge."""
METRICS = {
    "ttft": "Time to first token",
    "tpot": "Time per token",
    "hits": "Cache hits",
    "errors": "Failed requests",
    "tokens": "Tokens of an answer",
}
OVER_TIME = 12
"""Maximum number of judgements of a step that the page shows; the exported file has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRow:
    """A metric of a canary's step as text: its estimated change, and the bounds of the change."""

    name: str
    change: str
    bounds: str
    pairs: int
    words: str
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step of a canary, its newest judgement, and its metrics in each judgement, the newest first."""

    step: CanaryStep
    newest: CanaryLook | None
    words: str
    level: str
    rows: list[EstimateRow]
    looks: list[tuple[CanaryLook, list[EstimateRow]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPage(Context):
    """The page of a pool's canary. `declared` is True if the spec has a canary; `fields` are the fields of the form
    that pauses or resumes the canary.
    """

    template: ClassVar[str] = "pages/canary.html"
    shell: Shell
    steps: list[StepRow]
    declared: bool
    paused: bool
    fields: dict[str, Any]
    needed: str


async def show(visit: Visit) -> Response:
    key = visit.pool_key()
    detail, found = await asyncio.gather(visit.api.pool(key, instances=False), visit.api.canary(key))
    shell = await visit.shell(
        f"Canary of {key}",
        "pools",
        crumbs=crumbs_below(str(key), Crumb(words="Canary")),
        pool=str(key),
        tab="overview",
        live="pools",
    )
    rollout: Mapping[str, Any] = detail.spec.get("rollout") or {}
    return visit.page(
        CanaryPage(
            shell=shell,
            steps=step_rows(found),
            declared="canary" in rollout,
            paused=bool(rollout.get("paused")),
            fields={name: rollout[name] for name in ("maxSurge", "maxUnavailable") if name in rollout},
            needed=PlanKind.ROLLOUT.facts.role.value,
        )
    )


def step_rows(found: Canary) -> list[StepRow]:
    """Return the steps of the canary, with their newest judgements as text."""
    return [_step(one) for one in found.steps]


def _step(step: CanaryStep) -> StepRow:
    newest = step.looks[0] if step.looks else None
    words, level = WORDS[newest.verdict] if newest else ("waits", "info")
    looks = [(look, estimate_rows(look)) for look in step.looks[:OVER_TIME]]
    return StepRow(step=step, newest=newest, words=words, level=level, rows=estimate_rows(newest) if newest else [], looks=looks)


def estimate_rows(look: CanaryLook) -> list[EstimateRow]:
    """Return the metrics of a judgement as text."""
    return [_row(one) for one in look.estimates]


def _row(one: CanaryEstimate) -> EstimateRow:
    words, level = WORDS[one.verdict]
    return EstimateRow(
        name=METRICS.get(one.metric, one.metric),
        change=amount(one.change, one) if one.pairs else "not measured",
        bounds=between(one),
        pairs=one.pairs,
        words=words if one.pairs else "–",
        level=level if one.pairs else "plain",
    )


def amount(change: float, one: CanaryEstimate) -> str:
    """Format a change of a metric in words: `8 % more`, `2 points less`, `the same`."""
    size = round(100 * abs(change))
    unit = "%" if one.is_ratio else ("point" if size == 1 else "points")
    return "the same" if size == 0 else f"{size} {unit} {'more' if change > 0 else 'less'}"


def between(one: CanaryEstimate) -> str:
    """Describe the bounds of a metric's change. A negative bound is described as a decrease, so that a lower bound of
    -12 % is `at most 12 % less`.
    """
    if one.low is None and one.high is None:
        return "nothing is certain yet"
    if one.low is None:
        return _limit(one.high or 0.0, one, "at most", "not more")
    if one.high is None:
        return _limit(one.low, one, "at least", "not less")
    low, high = (amount(bound, one) if round(100 * bound) else "no change" for bound in (one.low, one.high))
    return "no change" if low == high == "no change" else f"between {low} and {high}"


def _limit(bound: float, one: CanaryEstimate, above: str, at_zero: str) -> str:
    """Describe one bound of a metric's change. `above` is `at least` or `at most`. For a negative bound, which is
    described as a decrease, the words are exchanged: `at least -12 %` becomes `at most 12 % less`. `at_zero` is the
    text for a bound that rounds to 0.
    """
    turned = {"at most": "at least", "at least": "at most"}
    if not round(100 * bound):
        return at_zero
    return f"{above if bound > 0 else turned[above]} {amount(bound, one)}"


ROUTES = Routes(pages={f"{POOL}/canary": show}, exports={f"{POOL}/canary": Export(name="canary", of_pool=True)})
