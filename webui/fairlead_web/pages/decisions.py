"""`/decisions`: why a request went where it went."""

from starlette.responses import Response

from fairlead.routing.protocols import DecisionReason
from fairlead_client.resources import CandidateTerm, RoutingDecision
from fairlead_web import formats
from fairlead_web.contexts.traffic import Candidate, DecisionPage, DecisionsPage
from fairlead_web.shells import Crumb
from fairlead_web.visits import Visit


async def index(visit: Visit) -> Response:
    listing = await visit.api.decisions(visit.filters("pool", "instance", "session", "reason", ranged=True))
    shell = await visit.shell(
        "Decisions", "decisions", crumbs=(Crumb(words="Decisions"),), pool=visit.param("pool"), ranged=True, live="decisions"
    )
    return visit.page(DecisionsPage(shell=shell, listing=listing, reasons=[reason.value for reason in DecisionReason]))


async def show(visit: Visit) -> Response:
    decision = await visit.api.decision(visit.request.path_params["decision"])
    shell = await visit.shell(
        f"Decision {decision.id}",
        "decisions",
        crumbs=(Crumb(words="Decisions", path="/decisions"), Crumb(words=decision.id)),
        pool=decision.pool,
    )
    terms = sorted({name for candidate in decision.candidates for name in candidate.terms})
    chosen, runner_up = _candidate(decision, decision.chosen), _candidate(decision, decision.runner_up)
    return visit.page(
        DecisionPage(
            shell=shell,
            decision=decision,
            why=why(decision),
            candidates=candidates(decision),
            term_names=terms,
            margin=abs(chosen.total - runner_up.total) if chosen and runner_up else None,
        )
    )


def why(decision: RoutingDecision) -> str:
    """The choice in a sentence or two, with the numbers that carried it."""
    chosen, runner_up = _candidate(decision, decision.chosen), _candidate(decision, decision.runner_up)
    if chosen is None:
        return f"{decision.chosen} was chosen ({formats.words(decision.reason)}); its score was not recorded."
    share = chosen.hit_tokens / decision.prompt_tokens if decision.prompt_tokens else 0.0
    text = (
        f"{decision.chosen} was chosen ({formats.words(decision.reason)}): it already held {formats.count(chosen.hit_tokens)} of "
        f"{formats.count(decision.prompt_tokens)} prompt tokens ({formats.share(share)}), with {formats.count(chosen.pending_tokens)} tokens "
        f"waiting ahead, so its first token was predicted in {formats.seconds(chosen.predicted_ttft_seconds)}."
    )
    if runner_up is None:
        return f"{text} It was the only candidate compared."
    gap = runner_up.predicted_ttft_seconds - chosen.predicted_ttft_seconds
    if gap >= 0:
        return f"{text} The runner-up {runner_up.instance} would have taken {formats.seconds(gap)} longer."
    return f"{text} {runner_up.instance} would have been {formats.seconds(-gap)} faster, but the cache is kept warm where it is."


def candidates(decision: RoutingDecision) -> list[Candidate]:
    """Chosen first, then the runner-up, then the rest by predicted TTFT; bars on one scale."""
    slowest = max((candidate.predicted_ttft_seconds for candidate in decision.candidates), default=0.0) or 1.0
    order = {decision.chosen: 0, decision.runner_up: 1}
    ranked = sorted(decision.candidates, key=lambda item: (order.get(item.instance, 2), item.predicted_ttft_seconds))
    return [
        Candidate(
            term=candidate,
            role={0: "chosen", 1: "runner-up"}.get(order.get(candidate.instance, 2), ""),
            hit_length=round(candidate.hit_tokens / max(1, candidate.hit_tokens + candidate.miss_tokens) * 100, 1),
            ttft_length=round(candidate.predicted_ttft_seconds / slowest * 100, 1),
        )
        for candidate in ranked
    ]


def _candidate(decision: RoutingDecision, instance: str | None) -> CandidateTerm | None:
    return next((candidate for candidate in decision.candidates if candidate.instance == instance), None)
