"""PromptsTooLong: some requests miss the TTFT target even if an instance serves nothing else, because their prompts are
too long or the target is too short. No number of instances serves these requests in time.
"""

from collections.abc import Iterator

from fairlead.advice import wording
from fairlead.advice.findings import LATE_FIRST_TOKENS, Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, Remedy, refused
from fairlead.advice.remedy_words import beyond_remedies, beyond_words, is_beyond
from fairlead.advice.situations import PoolSituation
from fairlead.reports.rejections import FOR_PREFILL
from fairlead.scaling.remedies import Reach, Simulated, enough_time

_MOST = 0.5
"""Minimum share (0-1) of the refused or late requests whose prompts are too long, from which long prompts count as the
explanation.
"""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield a finding if requests with too-long prompts are a large share of the refused requests, or a larger share of
    all requests than the objectives allow to be late.

    The simulation shows which prompts are too long. If there is no simulation, or it does not show the problem, the
    requests that found an idle instance are used instead.
    """
    found = pool.simulated
    if found is None or not is_beyond(found):
        if pool.measured is not None and pool.out_of_slo:
            yield _measured(pool, pool.measured)
        return
    if not pool.missed:
        return
    reach = found.reach
    turned_away = sum(pool.refused.get(reason, 0) for reason in FOR_PREFILL)
    by_refusals = (reach.share_of_refused or 0.0) * turned_away
    harm = min(pool.missed, max(by_refusals, reach.share * pool.ended))
    mostly = harm >= _MOST * pool.missed
    yield Finding(
        pool=pool.pool,
        cause=Cause.PROMPTS_TOO_LONG,
        level=Level.BAD if pool.out_of_slo else Level.WARN,
        harm=Harm(amount=pool.per_second(harm), unit=HarmUnit.REQUESTS),
        sentence=f"{pool.pool}: {beyond_words(reach, found.ttft_seconds)}; {beyond_remedies(found)}.",
        evidence=Evidence(kind=EvidenceKind.REJECTIONS, seconds=pool.window_seconds),
        remedy=_remedy(found),
        explains=frozenset({LATE_FIRST_TOKENS, *(refused(reason) for reason in FOR_PREFILL)}) if mostly else frozenset(),
    )


def _measured(pool: PoolSituation, reach: Reach) -> Finding:
    target = wording.seconds(reach.ttft_seconds or 0.0)
    harm = min(float(pool.missed), reach.share * pool.ended)
    within = wording.percent(100 - 50 * pool.allowed)
    return Finding(
        pool=pool.pool,
        cause=Cause.PROMPTS_TOO_LONG,
        level=Level.BAD,
        harm=Harm(amount=pool.per_second(harm), unit=HarmUnit.REQUESTS),
        sentence=(
            f"{pool.pool}: {wording.share(reach.share)} of requests got their first token later than the TTFT target of "
            f"{wording.seconds(pool.slo.ttft_seconds)}, although their instance had no other prompt to compute; no number of instances can "
            f"serve them in time; remedies for them: a TTFT target of {target} (an estimate: {within} of such requests had their first token "
            f"sooner), a pool of their own with such a target or faster engines."
        ),
        evidence=Evidence(kind=EvidenceKind.DECISIONS, seconds=pool.window_seconds),
        remedy=Remedy(kind="slo", words=f"a TTFT target of {target} (estimate)", fields={"ttft": duration(reach.ttft_seconds or 0.0)}),
        explains=frozenset({LATE_FIRST_TOKENS}) if harm >= _MOST * pool.missed else frozenset(),
    )


def _remedy(found: Simulated) -> Remedy | None:
    confirmed = enough_time(found)
    if confirmed is None:
        return None
    words = f"a TTFT target of {wording.seconds(confirmed.value)}"
    return Remedy(kind="slo", words=words, fields={"ttft": duration(confirmed.value)}, simulation=found.simulation)


def duration(seconds: float) -> str:
    """Return a duration as manifests write it: 12 → `12s`, 1.5 → `1500ms`."""
    return f"{seconds:g}s" if seconds == round(seconds) else f"{round(seconds * 1000)}ms"
