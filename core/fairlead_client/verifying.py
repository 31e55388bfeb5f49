"""Finds contradictions in the public record.

Decisions, re-routes and migrations are checked against their own numbers, migrations against the sessions' history, a
session's history against itself and the session, and the audit log against its hash chain.
"""

from collections import Counter
from collections.abc import Awaitable
from itertools import pairwise

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MoveOutcome
from fairlead.routing.explanations.checking import contradictions
from fairlead.routing.explanations.explaining import candidate, deciding, pair_in_words, runner_up
from fairlead.routing.explanations.explaining_moves import explain_move
from fairlead.routing.explanations.fates import whole_story
from fairlead.routing.explanations.move_checking import EXACT, cause_contradictions
from fairlead.tables import PoolKey
from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_client.resources.sessions import BindingHistoryItem, SessionDetail, SessionSummary

LOOKS = 3
"""Number of times that a session is read before a contradiction in it is reported."""
FORBIDDEN, NOT_FOUND = 403, 404


class Verifier:
    """Checks one item at a time and collects contradictions. Each contradiction is a text with the path of its item."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.looked_at: Counter[str] = Counter()
        self.rules: dict[str, Counter[str]] = {}
        self._sessions: dict[tuple[str, str], SessionDetail] = {}
        self._migrations: set[str] = set()
        """The ids of the migrations that were read."""

    async def decision(self, decision: RoutingDecision) -> None:
        """Compute the choice again and compare it with the recorded choice."""
        self.looked_at["decisions"] += 1
        self.rules.setdefault(decision.policy, Counter())[decision.rule.code] += 1
        problems = contradictions(decision, tuple(decision.parts), decision.considered, decision.reason)
        self._note(f"/v1/decisions/{decision.id}", [*problems, *_sentence(decision)])

    async def reroute(self, reroute: ReRoute) -> None:
        """Check the numbers of a re-route."""
        self.looked_at["re-routes"] += 1
        self._note(f"/v1/reroutes/{reroute.id}", _move(reroute, f"Request {reroute.request}"))

    async def migration(self, migration: Migration, api: ControlApi) -> None:
        """Check a migration's numbers, and that it is a step of the session's history."""
        self.looked_at["migrations"] += 1
        self._migrations.add(migration.id)
        problems = _move(migration, f"Session {migration.session}")
        try:
            steps = _step(migration, await self._session(migration, api))
        except ApiProblem as problem:
            steps = [f"its session cannot be read: {problem}"]
        if steps and not await _is_deleted(api.migration(migration.id)):  # retention deletes it before its step
            problems += steps
        self._note(f"/v1/migrations/{migration.id}", problems)

    async def session(self, session: SessionSummary, api: ControlApi) -> None:
        """Check a session's history: it must have no gap, no overlap and no move without a migration, and must lead to
        the session's present instance. If something does not fit, the session is read again, because it may have moved
        while it was read.
        """
        self.looked_at["sessions"] += 1
        problems: list[str] = []
        for _ in range(LOOKS):
            try:
                detail = await api.session(PoolKey.parse(session.pool), session.session)
            except ApiProblem as problem:
                if session.instance is None and problem.problem.status == NOT_FOUND:
                    return  # it had ended, and retention has deleted it since
                problems = [f"it cannot be read: {problem}"]
                continue
            problems = history_contradictions(detail) or await self._last_move(detail, api)
            if not problems:
                return
        self._note(f"/v1/sessions/{session.pool}/{session.session}", problems)

    async def _last_move(self, detail: SessionDetail, api: ControlApi) -> list[str]:
        """Return a contradiction if the migration that brought the session to its present instance is not recorded.
        Such a migration is kept as long as the session stays on that instance.
        """
        moves = [one.migration for one in detail.history if one.released_at is None and one.migration is not None]
        for move in moves:
            if move not in self._migrations:
                try:
                    await api.migration(move)
                except ApiProblem as problem:
                    return [f"the migration {move} that brought it to its instance cannot be read: {problem}"]
        return []

    async def audit(self, api: ControlApi) -> None:
        """Check the audit log's hash chain. Without the right to read the whole log, nothing is checked."""
        try:
            found = await api.audit_verification()
        except ApiProblem as problem:
            if problem.problem.status != FORBIDDEN:
                raise
            return
        self.looked_at["audit entries"] += found.entries
        if not found.intact:
            self._note("/v1/audit", [f"entry {found.first_broken} was changed, added or removed"])

    async def _session(self, migration: Migration, api: ControlApi) -> SessionDetail:
        key = (migration.pool, migration.session)
        detail = self._sessions.get(key)
        if detail is None or all(holder.migration != migration.id for holder in detail.history):
            detail = self._sessions[key] = await api.session(PoolKey.parse(migration.pool), migration.session)
        return detail

    def _note(self, where: str, problems: list[str]) -> None:
        self.found += [f"{where}: {problem}" for problem in problems]


async def _is_deleted(reading: Awaitable[object]) -> bool:
    """Return whether the object of this read no longer exists."""
    try:
        await reading
    except ApiProblem as problem:
        return problem.problem.status == NOT_FOUND
    return False


def _sentence(decision: RoutingDecision) -> list[str]:
    """Return the contradictions between a decision's explanation in sentences and its numbers."""
    found = [] if decision.explanation == whole_story(decision, decision) else ["the sentence differs from the one that its numbers give"]
    chosen = candidate(decision, decision.target)
    other = None if chosen is None or not decision.rule.order else runner_up(decision, chosen)
    if chosen is None or other is None:
        return found
    first = deciding(decision, chosen, other)
    if first is not None:
        term, mine, theirs = first
        words = pair_in_words(mine, theirs, term.unit)
        if f"{words[0]} against {words[1]} on {other.instance}, {term.better} is better" not in decision.explanation:
            found.append(f"the sentence does not contain {term.name} {mine} against {theirs}")
    if decision.ttft_seconds is not None and decision.served_by is None:
        found.append("it has a TTFT but no instance served it")
    return found


def _move(move: Migration | ReRoute, what: str) -> list[str]:
    found: list[str] = []
    stay, go, benefit, actual = (
        move.predicted_source_ttft_seconds,
        move.predicted_target_ttft_seconds,
        move.benefit_seconds,
        move.actual_ttft_seconds,
    )
    if (move.source, move.source_rank) == (move.target, move.target_rank):
        found.append("it has no destination")
    if move.trigger is BindingReason.COLD:
        found.append("a first placement is not a move")
    found += cause_contradictions(move)
    predicted = None if stay is None or go is None else stay - go
    if benefit != predicted and (benefit is None or predicted is None or abs(predicted - benefit) > EXACT):
        found.append(f"its benefit {benefit} is not {stay} - {go}")
    shown = actual is not None and stay is not None and actual < stay
    if move.paid_off and not (shown and benefit is not None and benefit > 0):
        found.append("it is recorded as faster than staying, but its numbers do not show it")
    if move.paid_off is False and (actual is None or stay is None or actual < stay):
        found.append("it is recorded as not faster than staying, but its numbers do not show it")
    if actual is not None and move.outcome in (MoveOutcome.UNDERWAY, MoveOutcome.REFUSED):
        found.append(f"it had a first token, but its outcome is {move.outcome}")
    if move.explanation != explain_move(move, what):
        found.append("the sentence differs from the one that its numbers give")
    if "It was faster: " in move.explanation and move.paid_off is not True:
        found.append("the sentence says that it was faster as predicted")
    if (
        benefit is not None
        and benefit <= 0
        and "faster." in move.explanation.partition(" to the first token, going ")[2].partition(". ")[0]
    ):
        found.append("the sentence calls a predicted loss a gain")
    return found


def _step(migration: Migration, detail: SessionDetail) -> list[str]:
    """Return the contradictions between a migration and the session's history, which must contain exactly this move."""
    history = sorted(detail.history, key=lambda holder: holder.version)
    steps = [index for index, holder in enumerate(history) if holder.migration == migration.id]
    if len(steps) != 1:
        return [f"its session's history has {len(steps)} such steps instead of one"]
    found: list[str] = []
    step = history[steps[0]]
    if step.instance != migration.target:
        found.append(f"its session went to {step.instance}, not to {migration.target}")
    if step.rank != migration.target_rank:
        found.append(f"its session went to rank {step.rank}, not to {migration.target_rank}")
    if step.router != migration.router:
        found.append(f"its session was moved by {step.router}, not by {migration.router}")
    if step.reason != migration.trigger:
        found.append(f"its session moved as {step.reason}, not as {migration.trigger}")
    if steps[0] and history[steps[0] - 1].instance != migration.source:
        found.append(f"its session was on {history[steps[0] - 1].instance}, not on {migration.source}")
    return found


def history_contradictions(detail: SessionDetail) -> list[str]:
    """Return the contradictions in a session's history, and between the history and the session; empty if there are
    none.
    """
    history = sorted(detail.history, key=lambda holder: holder.version)
    found = [f"version {one.version} ended before it began" for one in history if _is_backwards(one)]
    for before, after in pairwise(history):
        found += _following(before, after)
    if not history:
        return [] if detail.session.instance is None else [f"it is at {detail.session.instance}, and has no holder"]
    return [*found, *_present(detail.session, history[-1]), *_count(detail.session, history)]


def _is_backwards(holder: BindingHistoryItem) -> bool:
    return holder.released_at is not None and holder.released_at < holder.bound_at


def _following(before: BindingHistoryItem, after: BindingHistoryItem) -> list[str]:
    """Return the contradictions between two consecutive holders of a session."""
    if after.version != before.version + 1:
        return [f"its history goes from version {before.version} to {after.version}"]
    if before.released_at is None or before.released_at > after.bound_at:
        return [f"version {before.version} had not ended when version {after.version} began"]
    changed = before.instance != after.instance or (None not in (before.rank, after.rank) and before.rank != after.rank)
    placed = after.reason is BindingReason.COLD  # by a router that knew no earlier home
    unrecorded = changed and not placed and after.migration is None and before.released_at == after.bound_at
    return [f"it moved with version {after.version}, and no migration is recorded"] if unrecorded else []


def _present(session: SessionSummary, last: BindingHistoryItem) -> list[str]:
    """Return the contradictions between a session and its last holder."""
    if last.released_at is not None:
        return [] if session.instance is None else [f"it is at {session.instance}, but its last holder had ended"]
    found = [
        f"its {name} is {getattr(session, name)}, but that of its holder is {getattr(last, name)}"
        for name in ("instance", "version", "reason", "bound_at")
        if getattr(session, name) != getattr(last, name)
    ]
    return found if last.rank in (None, session.rank) else [*found, f"its rank is {session.rank}, but its holder's is {last.rank}"]


def _count(session: SessionSummary, history: list[BindingHistoryItem]) -> list[str]:
    """Return a contradiction if the session's number of migrations differs from the number in its history. Only a
    complete history is compared.
    """
    moves = sum(holder.migration is not None for holder in history)
    wrong = session.migrations < moves or (history[0].version == 1 and session.migrations != moves)
    return [f"it has {session.migrations} migrations, its history {moves}"] if wrong else []
