"""Sentences about a decision's request after the decision, made only from the record."""

from collections.abc import Iterator
from typing import Any

from fairlead.amounts import amount
from fairlead.reports.decisions import HANDED_OVER, Attempt, Continuation, KeptFor, RequestOutcome, SampledDecision
from fairlead.routing.contracts.weighing import Unit
from fairlead.routing.explanations.explaining import WeighedDecision, explain, in_words
from fairlead.targets import target_of

FAILURES = {
    "refused": "refused the connection",
    "unreachable": "could not be reached",
    "lost": "was lost",
    "protocol": "sent a response that is not HTTP",
    "passed-over": "was skipped by the proxy",
    "status": "answered with a server error",
    "busy": "was full",
    "timeout": "did not answer in time",
    "stalled": "made no progress",
    "credential": "demanded a credential",
    "deadline": "had not answered by the request's deadline",
    "declined": "refused the request (4xx)",
    "answer": "sent an invalid answer",
    "rest-refused": "refused to continue the answer",
}
"""Words for the kinds of failure that routers report, as the end of a sentence; unknown kinds are shown unchanged."""


def fate(decision: SampledDecision[Any, Any]) -> str:
    """Return sentences about the course and the end of the request; "" if nothing was recorded."""
    return " ".join(_sentences(decision))


def attempt_in_words(attempt: Attempt) -> str:
    """Describe a failed attempt, for example `i0 was lost after 1.20 s`."""
    how = FAILURES.get(attempt.failure, f"failed it ({attempt.failure})")
    return f"{target_of(attempt.instance, attempt.rank)} {how} after {in_words(attempt.after_seconds, Unit.SECONDS)}"


def continuation_in_words(one: Continuation) -> str:
    """Describe a continuation, for example `The answer, of which 12 tokens were given, went on at i1 after 0.40 s; 900
    tokens were computed again.`
    """
    given = f", of which {amount(one.carried_tokens, 'token', 'were')} given," if one.carried_tokens else ""
    target, source = target_of(one.target, one.target_rank), target_of(one.source, one.source_rank)
    why = f" as {source} drained" if one.why == HANDED_OVER else f" and not at {source}"
    went = "was to go on" if one.gap_seconds is None else "went on"
    gap = "" if one.gap_seconds is None else f" after {in_words(one.gap_seconds, Unit.SECONDS)}"
    other = f", and may differ from the answer of {source} ({one.unlike})" if one.unlike else ""
    return f"The answer{given} {went} at {target}{why}{gap}{other}; {amount(one.computed_tokens, 'token', 'were')} computed again"


def _sentences(decision: SampledDecision[Any, Any]) -> Iterator[str]:
    for attempt in decision.attempts:
        yield f"{attempt_in_words(attempt)}."
    for one in decision.continuations:
        yield f"{continuation_in_words(one)}."
    match decision.outcome:
        case RequestOutcome.SERVED if decision.attempts and not decision.continuations:
            yield f"Then {decision.served_target or 'another instance'} served it."
        case RequestOutcome.REFUSED:
            yield f"The request was refused{'' if decision.rejection is None else f': {decision.rejection.value}'}."
        case RequestOutcome.FAILED:
            yield "The request failed."
        case RequestOutcome.CANCELLED:
            yield "Its client left."
        case RequestOutcome.DECLINED:
            yield "The engine refused the client's request as invalid (4xx)."
    for name, seconds, target in (
        ("TTFT", decision.ttft_seconds, decision.ttft_target_seconds),
        ("TPOT", decision.tpot_seconds, decision.tpot_target_seconds),
    ):
        if seconds is not None and target is not None and seconds >= target:
            yield f"Its {name} of {in_words(seconds, Unit.SECONDS)} missed the target of {in_words(target, Unit.SECONDS)}."


WHY_KEPT = {
    KeptFor.ASKED: "its client asked for it (x-fairlead-explain, or a sampled trace)",
    KeptFor.SESSION: "all decisions of its session were kept",
    KeptFor.REFUSED: "the request was refused",
    KeptFor.FAILED: "the request failed",
    KeptFor.RETRIED: "an instance failed the request",
    KeptFor.LATE: "the request missed a target",
    KeptFor.MOVED: "the request or its session moved",
    KeptFor.SAMPLE: "it belongs to the sample of successful requests",
}


def kept_in_words(decision: SampledDecision[Any, Any]) -> str:
    """Return a sentence with the reason why the decision is kept, and the number of requests that it represents."""
    weight = 1 / decision.sample_rate
    stands = "" if weight < 1.005 else f"; it stands for {weight:,.1f} such requests"
    return f"{WHY_KEPT[decision.kept]}{stands}"


def whole_story(weighed: WeighedDecision, kept: SampledDecision[Any, Any]) -> str:
    """Return sentences with the reason why the chosen instance was chosen and the end of the request. Both arguments
    are the record of the same decision.
    """
    why = explain(weighed) if kept.chosen else "No instance could take the request."
    return f"{why} {fate(kept)}".rstrip()
