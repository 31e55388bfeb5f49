"""`/rejections`: the refused requests, grouped by cause, with what to do about it."""

from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead.reports.rejections import RejectionReason
from fairlead_client.resources.rejections import RejectionGroup, RejectionReport
from fairlead_web.drawing.charts import Sparkline, sparkline
from fairlead_web.drawing.range_figures import by_cause
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionsPage(Context):
    template: ClassVar[str] = "pages/rejections.html"
    shell: Shell
    report: RejectionReport
    causes_counted: dict[str, str]
    """Requests by cause over the range; empty where the page shows one priority class and its chart does not."""
    groups: list[tuple[RejectionGroup, str, Sparkline]]
    fixed: frozenset[str]
    """Pools whose number of instances is not planned here."""
    causes: dict[str, str]
    """The words for each cause."""


REASONS = {
    RejectionReason.PREDICTED_TTFT: "First token predicted too late",
    RejectionReason.DECODE_OVERLOADED: "Decode predicted too slow",
    RejectionReason.AFTER_PREFILL: "Decode too slow, after a prefill in vain",
    RejectionReason.QUEUE_FULL: "Queue full",
    RejectionReason.QUEUE_TIMEOUT: "Waited too long in the queue",
    RejectionReason.NO_INSTANCES: "No instance serving",
    RejectionReason.POLICY_FAILED: "The routing policy failed",
    RejectionReason.SCALED_TO_ZERO: "Scaled to zero",
    RejectionReason.UPSTREAM_FAILED: "Every instance tried failed",
    RejectionReason.SHUTTING_DOWN: "Router shutting down",
}

FILTERS = ("pool", "priority_class")


async def index(visit: Visit) -> Response:
    filters = visit.filters(*FILTERS, ranged=True) | visit.range.counted
    report = await visit.api.rejections({name: value for name, value in filters.items() if name not in {"cursor", "limit"}})
    shell = await visit.shell(
        "Rejections", "rejections", crumbs=(Crumb(words="Rejections"),), pool=visit.param("pool"), ranged=True, live="rejections"
    )
    groups = [
        (
            group,
            REASONS[group.reason],
            sparkline(group.sparkline, f"{REASONS[group.reason]}, over the range: {group.count} in total", 160, 32),
        )
        for group in sorted(report.groups, key=lambda group: -group.count)
    ]
    fixed = frozenset(f"{one.namespace}/{one.name}" for one in shell.pools if one.runs_already and one.scale_target is None)
    return visit.page(
        RejectionsPage(
            shell=shell,
            report=report,
            causes_counted={} if visit.param("priority_class") else by_cause(report),
            groups=groups,
            fixed=fixed,
            causes={one.value: words for one, words in REASONS.items()},
        )
    )


PATHS = ("/rejections", f"{POOL}/rejections")
ROUTES = Routes(pages=dict.fromkeys(PATHS, index), exports=dict.fromkeys(PATHS, Export(name="rejections", filters=FILTERS, ranged=True)))
