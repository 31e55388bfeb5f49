"""`/decisions`: why a request was sent to its instance."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import ClassVar

from starlette.responses import Response

from fairlead.reports.decisions import CandidateScore, DecisionReason, KeptFor, RequestOutcome, SampledDecision
from fairlead.routing.contracts.weighing import Better
from fairlead.routing.explanations.checking import contradictions
from fairlead.routing.explanations.explaining import in_words, value_of
from fairlead.routing.explanations.fates import fate, kept_in_words
from fairlead.routing.explanations.forecasts import forecast
from fairlead.routing.explanations.margins import margin_of
from fairlead.targets import target_of
from fairlead_client.public.calling import Query
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_client.resources.pages import Page as Listing
from fairlead_web.drawing.explained_figures import Figure, forecast_remark, margin_figure, sum_of_parts
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import NEWEST_ROWS, Visit
from fairlead_web.text import formats
from fairlead_web.text.addresses import pool_path, segment


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionsPage(Context):
    template: ClassVar[str] = "pages/decisions.html"
    shell: Shell
    reasons: list[DecisionReason]
    kept: list[KeptFor]
    outcomes: list[RequestOutcome]
    listing: Listing[RoutingDecision]
    newest: list[RoutingDecision]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRow:
    """One candidate of a routing decision as shown.

    `role` is chosen, runner-up or empty; `hit_length` and `ttft_length` are bar lengths 0-100.
    """

    term: CandidateScore
    role: str
    hit_length: float
    ttft_length: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRow:
    """One term of the score, with its value for each candidate, in the order of the candidates.

    `role` says whether the term decided or is a part of the total; it is empty for other terms. `best` holds the
    indexes of the candidates with the best value.
    """

    words: str
    unit: str
    better: str
    role: str
    values: list[str | None]
    best: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPage(Context):
    template: ClassVar[str] = "pages/decision.html"
    shell: Shell
    decision: RoutingDecision
    candidates: list[CandidateRow]
    terms: list[TermRow]
    limits: list[tuple[str, str]]
    predicted: float | None
    margin: Figure | None
    remark: str
    """A remark about a TTFT prediction that was far off; otherwise empty."""
    sum: str
    wrong: list[str]
    """Contradictions within the record of the decision, as text."""
    moved: list[tuple[str, str]]
    """The moves that happened with this request, each as the path of its page and its text."""
    fate: str
    """The outcome of the decision's request, in sentences."""
    kept: str
    facts: list[tuple[str, str]]


PLACED = frozenset(
    {
        "id",
        "pool",
        "request",
        "session",
        "named",
        "at",
        "policy",
        "table_version",
        "chosen",
        "runner_up",
        "reason",
        "prompt_tokens",
        "queued_seconds",
        "held_seconds",
        "ttft_seconds",
        "sample_rate",
        "served_by",
        "decode",
        "priority_class",
        "kept",
        "outcome",
        "rejection",
        "attempts",
        "continuations",
        "shadows",
        "client_request",
        "trace",
        "tpot_seconds",
        "ttft_target_seconds",
        "tpot_target_seconds",
    }
)
"""Fields of the decision that the page shows in a special place; all other fields are listed unchanged."""

FILTERS = ("pool", "instance", "session", "reason", "kept", "outcome", "priority_class", "trace")
AROUND = timedelta(minutes=10)
"""Time before and after a decision in which the moves of its request are searched."""


async def index(visit: Visit) -> Response:
    listing = await visit.api.decisions(visit.filters(*FILTERS, ranged=True, results="results"))
    shell = await visit.shell(
        "Decisions", "decisions", crumbs=(Crumb(words="Decisions"),), pool=visit.param("pool"), ranged=True, live="decisions"
    )
    return visit.page(
        DecisionsPage(
            shell=shell,
            listing=listing,
            newest=listing.items[:NEWEST_ROWS],
            reasons=list(DecisionReason),
            kept=list(KeptFor),
            outcomes=list(RequestOutcome),
        )
    )


async def show(visit: Visit) -> Response:
    decision = await visit.api.decision(visit.request.path_params["decision"])
    moved = await _moved(visit, decision)
    shell = await visit.shell(
        f"Decision {decision.id}",
        "pools",
        crumbs=crumbs_below(
            decision.pool, Crumb(words="Decisions", path=f"{pool_path(decision.pool)}/decisions"), Crumb(words=decision.id)
        ),
        pool=decision.pool,
        tab="decisions",
        about={
            "decision": decision.id,
            "request": decision.request,
            "session": decision.session,
            "instance": decision.chosen,
            "trace": decision.trace,
        },
        around=decision.at,
    )
    ranked = candidates(decision)
    chosen = next((one.term for one in ranked if one.role == "chosen"), None)
    margin = margin_of(decision)
    elsewhere = decision.served_target not in (None, decision.target)
    came = forecast(chosen.predicted_ttft_seconds, decision.ttft_seconds, decision.held_seconds, elsewhere=elsewhere) if chosen else None
    return visit.page(
        DecisionPage(
            shell=shell,
            decision=decision,
            candidates=ranked,
            terms=term_rows(decision, [one.term for one in ranked]),
            limits=[(limit.words, in_words(limit.value, limit.unit)) for limit in decision.limits],
            predicted=None if chosen is None else chosen.predicted_ttft_seconds,
            margin=None if margin is None else margin_figure(margin),
            remark=forecast_remark(came),
            sum="" if chosen is None else sum_of_parts(decision, chosen),
            wrong=contradictions(decision, tuple(decision.parts), decision.considered, decision.reason),
            moved=moved,
            fate=fate(decision),
            kept=kept_in_words(decision),
            facts=facts(decision),
        )
    )


async def _moved(visit: Visit, decision: RoutingDecision) -> list[tuple[str, str]]:
    """Return the migrations and re-routes that happened with the decision's request, each as the path of its page and
    its text.
    """
    wanted: Query = {
        "pool": decision.pool,
        "from": (decision.at - AROUND).isoformat(),
        "to": (decision.at + AROUND).isoformat(),
        "session" if decision.session else "source": decision.session or decision.chosen,
        "limit": 100,
    }
    migrations, reroutes = await asyncio.gather(
        visit.attempt("migrations", visit.api.migrations(wanted)), visit.attempt("re-routes", visit.api.reroutes(wanted))
    )
    listed: list[tuple[str, Migration | ReRoute]] = [
        *(("migration", one) for one in (migrations.items if migrations else ())),
        *(("re-route", one) for one in (reroutes.items if reroutes else ())),
    ]
    return [
        (f"/{word.replace('-', '')}s/{segment(one.id)}", f"{word} from {one.origin} to {one.destination}")
        for word, one in sorted(listed, key=lambda item: item[1].at)
        if one.request == decision.request
    ]


def facts(decision: RoutingDecision) -> list[tuple[str, str]]:
    """Return the recorded fields that the page shows in no other place, each as its name in words and its value.

    The end of a field's name gives its unit: `output_tokens` is a number of tokens.
    """
    others = [field.name for field in fields(SampledDecision) if field.name not in PLACED]
    return [(formats.words(name), formats.by_unit(name, getattr(decision, name))) for name in others]


def term_rows(decision: RoutingDecision, shown: Sequence[CandidateScore]) -> list[TermRow]:
    """Return the terms of the score for all candidates, with unit and direction.

    The deciding term is first, then the parts of the total, then all other terms.
    """
    rows: list[TermRow] = []
    order = decision.rule.order
    scored = any(one.total is not None for one in shown)
    for term in sorted(decision.terms, key=lambda one: order.index(one.name) if one.name in order else len(order)):
        values = [value_of(one, term.name) for one in shown]
        known = [value for value in values if value is not None]
        if not known:
            continue
        best = min(known) if term.better is Better.LOWER else max(known)
        decides = term.name in order
        rows.append(
            TermRow(
                words=term.words,
                unit=term.unit,
                better=term.better,
                role="decides" if decides else "part of the score" if scored and term.name in decision.parts else "",
                values=[None if value is None else in_words(value, term.unit) for value in values],
                best=frozenset(index for index, value in enumerate(values) if value == best),
            )
        )
    places = {"decides": 0, "part of the score": 1, "": 2}
    once: dict[tuple[str, tuple[str | None, ...]], TermRow] = {}  # a total may be one of the figures that every policy records
    for row in sorted(rows, key=lambda row: places[row.role]):
        once.setdefault((row.words, tuple(row.values)), row)
    return list(once.values())


def candidates(decision: RoutingDecision) -> list[CandidateRow]:
    """Return the chosen candidate, then the other candidates as recorded: the best first, by the policy's measure.

    The bars of all candidates have the same scale.
    """
    slowest = max((candidate.predicted_ttft_seconds for candidate in decision.candidates), default=0.0) or 1.0
    second = None if decision.runner_up is None else target_of(decision.runner_up, decision.runner_up_rank)
    names = {second: "runner-up", decision.passed_over: "passed over", decision.target: "chosen"}
    ranked = sorted(decision.candidates, key=lambda item: item.instance != decision.target)
    return [
        CandidateRow(
            term=candidate,
            role=names.get(candidate.instance, ""),
            hit_length=round(candidate.hit_tokens / max(1, candidate.hit_tokens + candidate.miss_tokens) * 100, 1),
            ttft_length=round(candidate.predicted_ttft_seconds / slowest * 100, 1),
        )
        for candidate in ranked
    ]


ROUTES = Routes(
    pages={"/decisions": index, f"{POOL}/decisions": index, "/decisions/{decision:path}": show},
    exports=dict.fromkeys(("/decisions", f"{POOL}/decisions"), Export(name="decisions", filters=FILTERS, ranged=True)),
)
