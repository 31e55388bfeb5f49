"""The figures over a page's time range, with their texts.

A page reads the figures once, and uses them in its tiles, the legends of its charts and its sentences. Therefore each
quantity has the same value everywhere on a page.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairlead_client.resources.figures import InstanceFigures, RangeFigures
from fairlead_client.resources.rejections import RejectionReport
from fairlead_client.resources.slo import SloAttainment, SloShare
from fairlead_web.text import formats


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFigures:
    """The text of each figure. The key is the name of the chart metric that shows the figure, or the figure's own name.
    Unknown figures are an en dash.
    """

    figures: RangeFigures
    texts: Mapping[str, str]

    def below(self, goal: float) -> bool:
        """Return whether the percentage of requests within the objectives is below `goal`; False if it is unknown."""
        share = self.figures.attainment if self.figures.known else None
        return share is not None and share * 100 + 1e-9 < goal

    def above(self, limit_seconds: float) -> bool:
        """Return whether the TTFT at the objective's percentile exceeds `limit_seconds`. False if the two look the same
        after rounding, or if the TTFT is unknown.
        """
        ttft = self.figures.ttft_seconds if self.figures.known else None
        return ttft is not None and ttft > limit_seconds and formats.latency(ttft) != formats.latency(limit_seconds)

    @property
    def sends(self) -> str:
        """Sentences about the requests that were sent to instances: how many were sent, how they ended, and why these
        two numbers differ; empty if nothing is known.
        """
        found = self.figures
        if not found.known or not found.sent:
            return ""
        ended = (
            (found.completed_sends, "completed"),
            (found.failed_sends, "failed"),
            (found.cancelled_sends, "cancelled by clients"),
        )
        parts = [f"{formats.count(number)} {words}" for number, words in ended if number]
        rest = found.sent - sum(number for number, _ in ended)
        uneven = f" {formats.count(rest)} more were sent than ended, because some still ran at the end." if rest > 0 else ""
        uneven = f" {formats.count(-rest)} more ended than were sent, because some were sent before." if rest < 0 else uneven
        return (
            f"Sent to instances: {formats.count(found.sent)}. Ended there: {', '.join(parts) or 'none'}.{uneven} A request counts here "
            "each time it is sent: again after a failure, and to two instances where one prefills and another decodes. A refused request "
            "is not sent."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownInstance:
    """The figures of one instance, with `texts` as in ShownFigures."""

    figures: InstanceFigures
    texts: Mapping[str, str]


def shown(found: RangeFigures, more: Mapping[str, str] | None = None) -> ShownFigures:
    """Return the figures with their texts. `more` has the texts of further charts, by metric."""
    texts = _texts(found) if found.known else dict.fromkeys(_texts(found), formats.NONE)
    return ShownFigures(figures=found, texts={**texts, **(more or {})})


def _texts(found: RangeFigures) -> dict[str, str]:
    return {
        "attainment": formats.share(found.attainment),
        "ttft_attainment": formats.share(found.ttft_attainment),
        "tpot_attainment": formats.share(found.tpot_attainment),
        "served_in_time": formats.share(found.served_in_time),
        "ttft": formats.latency(found.ttft_seconds),
        "ttft_p50": formats.latency(found.ttft_p50_seconds),
        "ttft_p95": formats.latency(found.ttft_p95_seconds),
        "tpot_p95": formats.latency(found.tpot_p95_seconds),
        "hit_rate": formats.share(found.hit_rate),
        "asked": formats.count(found.asked),
        "judged": formats.count(found.judged),
        "refused": formats.count(found.refused),
        "refused_share": formats.share(found.refused_share),
        "failed_requests": formats.count(found.failed),
        "requests": formats.count(found.sent),
        "failed": formats.count(found.failed_sends),
        "migrations": formats.count(found.migrations),
        "reroutes": formats.count(found.reroutes),
        "seconds_won": formats.won(found.seconds_won) if found.compared else formats.NONE,
    }


def shown_instance(found: InstanceFigures) -> ShownInstance:
    """Return the figures of an instance with their texts."""
    texts = {
        "requests": formats.count(found.sent),
        "failed": formats.count(found.failed_sends),
        "ttft_attainment": formats.share(found.ttft_attainment),
        "first_tokens": formats.count(found.first_tokens),
        "hit_rate": formats.share(found.hit_rate),
        "ttft_p95": formats.seconds(found.ttft_p95_seconds),  # measured, and no step of a histogram
        "tpot_p95": formats.seconds(found.tpot_p95_seconds),
    }
    return ShownInstance(figures=found, texts=texts if found.known else dict.fromkeys(texts, formats.NONE))


def of_objectives(found: SloAttainment) -> dict[str, str]:
    """Return texts for figures that are also in the table of versions and classes: the counts and shares of all
    requests, by the name of the figure; and the attainment of each priority class, by the name of the class's line in
    the attainment chart.

    A page with that table shows these texts in place of the texts of RangeFigures. The API computes RangeFigures and
    SloAttainment at different times, so the texts of RangeFigures could contradict the table.
    """
    whole = found.whole
    counted = {
        "attainment": formats.share(whole.attainment),
        "ttft_attainment": formats.share(whole.ttft_attainment),
        "tpot_attainment": formats.share(whole.tpot_attainment),
        "served_in_time": formats.share(whole.served_in_time),
        "judged": formats.count(whole.requests),
        "refused": formats.count(whole.refused),
        "failed_requests": formats.count(whole.failed),
    }
    return by_class(found.shares) | (counted if whole.requests or whole.refused or whole.failed else {})


def by_class(shares: Iterable[SloShare]) -> dict[str, str]:
    """Return the attainment of each priority class over the range, as text, by the name of its line in the attainment
    chart.
    """
    counts: dict[str, tuple[int, int]] = {}
    for one in shares:
        in_time, judged = counts.get(one.priority_class or "", (0, 0))
        counts[one.priority_class or ""] = (in_time + one.in_time, judged + one.requests)
    return {f"attainment {name}": formats.share(part / whole if whole else None) for name, (part, whole) in counts.items()}


def by_cause(report: RejectionReport) -> dict[str, str]:
    """Return the number of refusals of each cause, as text, by the name of its line in the chart of refusals."""
    counts: dict[str, int] = {}
    for group in report.groups:
        counts[group.reason.value] = counts.get(group.reason.value, 0) + group.count
    return {f"refused_by_cause {cause}": formats.count(count) for cause, count in counts.items()}
