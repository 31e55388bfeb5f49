"""Finds contradictions in the public record.

Decisions, re-routes and migrations are checked against their own numbers, and migrations against the sessions' history.
"""

from collections import Counter

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MoveOutcome
from fairlead.routing.explanations.checking import contradictions
from fairlead.routing.explanations.explaining import candidate, deciding, pair_in_words, runner_up
from fairlead.routing.explanations.explaining_moves import explain_move
from fairlead.routing.explanations.fates import whole_story
from fairlead.routing.explanations.move_checking import cause_contradictions
from fairlead.tables import PoolKey
from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_client.resources.sessions import SessionDetail


class Verifier:
    """Checks one item at a time and collects contradictions, each in words with the item's path."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.looked_at: Counter[str] = Counter()
        self.rules: dict[str, Counter[str]] = {}
        self._sessions: dict[tuple[str, str], SessionDetail] = {}

    async def decision(self, decision: RoutingDecision) -> None:
        """Compute the choice again and compare it with the recorded one."""
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
        problems = _move(migration, f"Session {migration.session}")
        try:
            detail = await self._session(migration, api)
        except ApiProblem as problem:
            problems.append(f"its session cannot be read: {problem}")
        else:
            problems += _step(migration, detail)
        self._note(f"/v1/migrations/{migration.id}", problems)

    async def _session(self, migration: Migration, api: ControlApi) -> SessionDetail:
        key = (migration.pool, migration.session)
        detail = self._sessions.get(key)
        if detail is None or all(holder.migration != migration.id for holder in detail.history):
            detail = self._sessions[key] = await api.session(PoolKey.parse(migration.pool), migration.session)
        return detail

    def _note(self, where: str, problems: list[str]) -> None:
        self.found += [f"{where}: {problem}" for problem in problems]


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
    if move.source == move.target:
        found.append("it has no destination")
    if move.trigger is BindingReason.COLD:
        found.append("a first placement is not a move")
    found += cause_contradictions(move)
    if stay is not None and go is not None and (benefit is None or abs(stay - go - benefit) > 1e-6):
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
    if step.reason != migration.trigger:
        found.append(f"its session moved as {step.reason}, not as {migration.trigger}")
    if steps[0] and history[steps[0] - 1].instance != migration.source:
        found.append(f"its session was on {history[steps[0] - 1].instance}, not on {migration.source}")
    return found
