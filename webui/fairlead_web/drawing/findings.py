"""The findings of advice for pages, in the API's order: sentences, links to the evidence, and the plan that would help.
Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from fairlead.advice import wording
from fairlead.advice.findings import Cause, EvidenceKind, HarmUnit
from fairlead.amounts import amount
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.advice import Advice, AdviceEvidence
from fairlead_web.text import formats
from fairlead_web.text.addresses import instance_path, pool_path, with_query
from fairlead_web.text.time_ranges import stamp

MOST = 3
"""Maximum number of findings at the top of a page; the advice page lists all of them."""

_TABS = {
    EvidenceKind.HEATMAP: "/heatmap",
    EvidenceKind.REJECTIONS: "/rejections",
    EvidenceKind.DECISIONS: "/decisions",
    EvidenceKind.MIGRATIONS: "/migrations",
    EvidenceKind.INSTANCES: "/instances",
    EvidenceKind.SLO: "/slo",
    EvidenceKind.PREDICTOR: "/predictor",
    EvidenceKind.SCALING: "/scaling",
    EvidenceKind.POOL: "",
}
_RANGED = frozenset({EvidenceKind.HEATMAP, EvidenceKind.REJECTIONS, EvidenceKind.DECISIONS, EvidenceKind.MIGRATIONS, EvidenceKind.INSTANCE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of advice. `level` is `bad` (out of the objectives), `warn` or `note`. `path` is the path of the page
    that shows the evidence, with the evidence's time range.

    `plan` is the request for a plan that would help, as JSON; it is empty if no plan helps. A form sends it to
    `plan_path`; people need the role `needed` for that. `plan_words` names the plan's change.
    """

    level: str
    pool: str
    cause: str
    sentence: str
    harm: str
    path: str
    when: str
    """The time that the finding is about, as words: now, the last minutes or the last hour. It does not depend on the
    page's time range.
    """
    plan: str = ""
    plan_path: str = ""
    plan_words: str = ""
    needed: AccessRole = AccessRole.VIEWER


def of_advice(items: Iterable[Advice]) -> tuple[Finding, ...]:
    """Return every finding of the advice, in the API's order."""
    return tuple(_finding(one) for one in items)


def first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings for the top of a page: the first MOST whose level is above note."""
    return tuple(one for one in findings if one.level != "note")[:MOST]


def _finding(one: Advice) -> Finding:
    found = Finding(
        level=one.level.value,
        pool=one.pool,
        cause=one.cause.value,
        sentence=one.sentence,
        harm=f"affects {harm_words(one)}" if one.harm and one.unit in _COUNTED else harm_words(one),
        path=evidence_path(one.pool, one.evidence),
        when=_when(one),
    )
    if one.plan is None:
        return found
    return replace(
        found,
        plan=msgspec.json.encode(one.plan).decode(),
        plan_path=f"{pool_path(one.pool)}/advice",
        plan_words=one.plan_words or one.plan.kind.value,
        needed=one.plan.kind.facts.role,
    )


def _when(one: Advice) -> str:
    if one.cause is Cause.CONDITION_NOT_MET:
        return "Now"
    return f"Last {formats.span((one.evidence.end - one.evidence.start).total_seconds())}"


def evidence_path(pool: str, evidence: AdviceEvidence) -> str:
    """Return the path of the page that shows the evidence. If that page depends on a time range, the path includes the
    evidence's range.
    """
    path = pool_path(pool) + _TABS.get(evidence.kind, "")
    if evidence.kind is EvidenceKind.INSTANCE and evidence.instance is not None:
        path = instance_path(pool, evidence.instance)
    ends = {"from": stamp(evidence.start), "to": stamp(evidence.end)} if evidence.kind in _RANGED else {}
    return with_query(path, {"metric": evidence.metric, **ends})


_COUNTED = (HarmUnit.REQUESTS, HarmUnit.INSTANCES, HarmUnit.ROUTERS)
"""Units of harm that count affected things, such as requests. A harm in any other unit is a time or a share."""


def harm_words(one: Advice) -> str:
    """Return the finding's harm as a number with its unit."""
    match one.unit:
        case HarmUnit.REQUESTS:
            return wording.rate(one.harm) if one.harm else formats.NONE
        case HarmUnit.INSTANCES:
            return amount(one.harm, "instance") if one.harm else formats.NONE
        case HarmUnit.WAITED_SECONDS:
            return f"{formats.seconds(one.harm)} per hour"
        case HarmUnit.SILENT_SECONDS:
            return formats.span(one.harm)
        case HarmUnit.ROUTERS:
            return amount(one.harm, "router")
        case HarmUnit.ERROR:
            return f"{formats.share(one.harm)} off"
        case HarmUnit.HITS:
            return f"{formats.share(one.harm)} fewer hits"
