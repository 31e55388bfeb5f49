"""Makes the spans of a request from its stored decision alone, so a trace shows only what is stored.

The span `fairlead.decision` has the whole record. Each field is an attribute with the field's name; each candidate,
failed attempt and continuation is an event. The other spans show the same times graphically:

    chat llama               the request, arrival to end; named as the GenAI semantic conventions name operations
    ├─ fairlead.queue        arrival to dispatch
    ├─ fairlead.decision     the moment of the decision
    ├─ fairlead.retry        an instance that failed the request before its answer began
    ├─ fairlead.prefill      to the first token, or to the prompt's KV blocks where another instance decodes
    ├─ fairlead.decode       to the end, or to where the answer broke off
    ├─ fairlead.answer       prefill and decode of an answer that is not streamed: the router sees no first token
    └─ fairlead.move         a session that moved, a request that was re-routed, an answer continued by another instance
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from enum import StrEnum

from fairlead.reports.decisions import DecisionRecord, RequestOutcome
from fairlead.reports.moves import MigrationRecord, ReRouteRecord
from fairlead.routing.contracts.requests import TraceContext
from fairlead.routing.contracts.traces import TracedRequest
from fairlead.session_identities import name_of
from fairlead.tables import PoolKey
from fairlead.targets import target_of
from fairlead.values import value
from fairlead_router.tracing.contexts import span_id_of

Attribute = str | bool | int | float
Attributes = dict[str, Attribute]
Moved = MigrationRecord | ReRouteRecord

PROVIDER = "fairlead"
DECISION = "fairlead.decision"
CANDIDATE = "fairlead.candidate"
WEIGHING = "fairlead.weighing"
ATTEMPT = "fairlead.attempt"
CONTINUATION = "fairlead.continuation"
SHADOW = "fairlead.shadow"
MOVE = "fairlead.move"
RETRY = "fairlead.retry"
_ENDED_BADLY = (RequestOutcome.FAILED, RequestOutcome.REFUSED)


class Kind(StrEnum):
    """The kind of a span, with OpenTelemetry's names."""

    SERVER = "server"
    CLIENT = "client"
    INTERNAL = "internal"


@value
class Event:
    """An event in a span, at the time `at` in Unix seconds."""

    name: str
    at: float
    attributes: Attributes


@value
class Span:
    """A span. `start`, `end`: times in Unix seconds. `error`: the kind of failure with which the span ended; None if it
    did not fail.
    """

    name: str
    kind: Kind
    trace_id: str
    span_id: str
    parent: str | None
    state: str
    start: float
    end: float
    attributes: Attributes
    events: tuple[Event, ...] = ()
    error: str | None = None


def spans_of(traced: TracedRequest, decision: DecisionRecord, moves: Sequence[Moved], router: str) -> tuple[Span, ...]:
    """Return the spans of a request that has ended; the request's own span comes first. `moves`: the moves of sessions
    and requests that happened with this request.
    """
    context = traced.request.trace
    assert context is not None, "a traced request has a context"
    return tuple(_Trace(context, traced, decision, router).spans(moves))


class _Trace:
    """Makes the spans of one request."""

    def __init__(self, context: TraceContext, traced: TracedRequest, decision: DecisionRecord, router: str) -> None:
        self._context = context
        self._traced = traced
        self._decision = decision
        self._router = router
        self._arrived = traced.request.arrived_at
        self._ended = max(self._arrived, traced.ended_at)
        self._used: set[str] = set()

    def spans(self, moves: Sequence[Moved]) -> Iterator[Span]:
        decision, arrived = self._decision, self._arrived
        yield self._request()
        queued = decision.queued_seconds
        yield self._span("fairlead.queue", arrived, self._ended if queued is None else arrived + queued)
        yield self._span(DECISION, decision.at, decision.at, _decision_terms(decision), events=_details(decision, arrived))
        if queued is not None:
            yield from self._attempts(arrived + queued)
        for number, move in enumerate(moves):
            yield self._span(MOVE, move.at, move.at, terms(MOVE, move), named=f"{MOVE}/{number}")

    def _request(self) -> Span:
        context, decision = self._context, self._decision
        known: dict[str, Attribute | None] = {
            "gen_ai.operation.name": context.operation,
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": context.model or None,
            "gen_ai.request.stream": self._traced.request.streamed,
            "gen_ai.request.max_tokens": self._traced.request.max_output_tokens or None,
            "gen_ai.conversation.id": decision.session and name_of(decision.session),
            "gen_ai.usage.output_tokens": self._traced.output_tokens or None,
            "gen_ai.response.time_to_first_chunk": None if self._first is None else self._first - self._arrived,
            "fairlead.pool": str(decision.pool),
            "fairlead.router": self._router,
            "fairlead.decision.id": decision.id,
            "fairlead.request": decision.request,
        }
        bad = decision.outcome in _ENDED_BADLY
        return Span(
            name=f"{context.operation} {context.model}".rstrip(),
            kind=Kind.SERVER,
            trace_id=context.trace_id,
            span_id=context.span_id,
            parent=context.parent,
            state=context.state,
            start=self._arrived,
            end=self._ended,
            attributes={name: one for name, one in known.items() if one is not None},
            error=str(decision.rejection or decision.outcome) if bad else None,
        )

    @property
    def _first(self) -> float | None:
        return self._traced.first_token_at

    def _attempts(self, sent: float) -> Iterator[Span]:
        """Yield the spans of the work of engines on the request, from the time `sent` on."""
        begins, first = sent, self._ended if self._first is None else self._first
        for attempt in self._decision.attempts:
            failed = self._arrived + attempt.after_seconds
            if failed > first:
                break  # the answer had begun: a move shows it
            yield self._call(RETRY, begins, failed, target_of(attempt.instance, attempt.rank), terms(ATTEMPT, attempt), attempt.failure)
            begins = max(begins, failed)
        served = self._decision.served_target
        if self._first is not None and served is not None:
            prefilled = self._traced.prefilled_at
            divided = self._decision.decode is not None and prefilled is not None
            computed = self._first if prefilled is None or not divided else prefilled
            yield self._call("fairlead.prefill", begins, computed, served)
            yield from self._decodes(
                computed, target_of(self._decision.decode, self._decision.decode_rank) if self._decision.decode else served
            )
        elif served is not None:
            yield self._call("fairlead.answer", begins, self._ended, served)

    def _decodes(self, begins: float, target: str) -> Iterator[Span]:
        for moved in self._decision.continuations:
            broke = self._arrived + moved.after_seconds
            yield self._call("fairlead.decode", begins, broke, target, error=moved.why)
            begins = self._ended if moved.gap_seconds is None else broke + moved.gap_seconds
            yield self._call(MOVE, broke, begins, target_of(moved.target, moved.target_rank), terms(CONTINUATION, moved))
            target = target_of(moved.target, moved.target_rank)
        last = self._decision.continuations[-1:]
        if not (last and last[0].gap_seconds is None):
            yield self._call("fairlead.decode", begins, self._ended, target)

    def _call(
        self, name: str, start: float, end: float, target: str, attributes: Attributes | None = None, error: str | None = None
    ) -> Span:
        """Return a span of work at an engine. The engine's own spans are children of the first span at its target."""
        named = target if target not in self._used else f"{target}/{len(self._used)}"
        self._used.add(named)
        shown = {"fairlead.target": target, **(attributes or {})}
        return self._span(name, start, end, shown, named=named, kind=Kind.CLIENT, error=error)

    def _span(
        self,
        name: str,
        start: float,
        end: float,
        attributes: Attributes | None = None,
        *,
        events: Iterable[Event] = (),
        named: str = "",
        kind: Kind = Kind.INTERNAL,
        error: str | None = None,
    ) -> Span:
        context = self._context
        return Span(
            name=name,
            kind=kind,
            trace_id=context.trace_id,
            span_id=span_id_of(context, named or name),
            parent=context.span_id,
            state=context.state,
            start=start,
            end=max(start, end),
            attributes=attributes or {},
            events=tuple(events),
            error=error,
        )


def _decision_terms(decision: DecisionRecord) -> Attributes:
    own = terms(DECISION, decision, without=("weighing", "attempts", "continuations", "shadows"))
    return own | terms(WEIGHING, decision.weighing, without=("candidates",))


def _details(decision: DecisionRecord, arrived: float) -> Iterator[Event]:
    for one in decision.weighing.candidates:
        yield Event(name=CANDIDATE, at=decision.at, attributes=terms(CANDIDATE, one))
    for shadow in decision.shadows:
        yield Event(name=SHADOW, at=decision.at, attributes=terms(SHADOW, shadow))
    for attempt in decision.attempts:
        yield Event(name=ATTEMPT, at=arrived + attempt.after_seconds, attributes=terms(ATTEMPT, attempt))
    for moved in decision.continuations:
        yield Event(name=CONTINUATION, at=arrived + moved.after_seconds, attributes=terms(CONTINUATION, moved))


def terms(prefix: str, record: object, without: Sequence[str] = ()) -> Attributes:
    """Return the fields of a record as attributes `prefix.field`, and the entries of a dictionary as
    `prefix.field.key`. Fields that are None, and fields in `without`, are left out.
    """
    found: Attributes = {}
    for field in fields(record):  # type: ignore[arg-type]  # every record of a report is a dataclass
        held = getattr(record, field.name)
        if field.name in without or held is None:
            continue
        if isinstance(held, dict):
            found |= {f"{prefix}.{field.name}.{key}": one for key, one in held.items()}
        else:
            found[f"{prefix}.{field.name}"] = str(held) if isinstance(held, StrEnum | PoolKey) else held
    return found
