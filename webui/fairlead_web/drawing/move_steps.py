"""The steps of a session's migration, as far as they are recorded, and the migration's net effect. Pure.

A step has a time only if a record contains the time. For steps that are not measured, the page says so.
"""

from dataclasses import dataclass
from datetime import datetime

from fairlead.amounts import amount
from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import CacheFate, MoveOutcome
from fairlead.routing.explanations.explaining_moves import cause, transfer_in_words
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_client.resources.sessions import BindingHistoryItem
from fairlead_web.text import formats
from fairlead_web.text.addresses import segment


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStep:
    """One step of a migration. `at` is None if no time is recorded. `path` and `link_words` make a link to details of
    the step.

    `state` is `done`, `none` (there was nothing to do), or `unknown` (not recorded).
    """

    words: str
    state: str
    at: datetime | None
    told: str
    path: str = ""
    link_words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetEffect:
    """The effect of a move: `value` is a number with the direction of the effect, `told` explains the number, and
    `level` is its colour.
    """

    value: str
    told: str
    level: str


def steps_of(move: Migration, decision: RoutingDecision | None, history: list[BindingHistoryItem] | None) -> list[MoveStep]:
    """Return the steps plan, transfer, cutover and release of a migration. `history` is None if the session's history
    could not be read.
    """
    return [_plan(move, decision), _transfer(move), *_homes(move, history)]


def _plan(move: Migration, decision: RoutingDecision | None) -> MoveStep:
    why = cause(move)
    if decision is not None:
        told = (
            f"Router {decision.router} weighed {len(decision.candidates)} of {max(decision.considered, len(decision.candidates))} "
            f"candidates by policy {decision.policy}: {why}."
        )
        path = f"/decisions/{segment(decision.id)}"
        return MoveStep(words="Plan", state="done", at=decision.at, told=told, path=path, link_words="Candidates weighed")
    if not move.request and move.trigger is BindingReason.OPERATOR:
        return MoveStep(
            words="Plan", state="done", at=None, told=f"{_capital(why)}.", path=f"/plans/{segment(move.id)}", link_words="The plan"
        )
    if not move.request:
        return MoveStep(words="Plan", state="unknown", at=None, told=f"{_capital(why)}. The request that it moved with was not reported.")
    return MoveStep(words="Plan", state="unknown", at=None, told=f"{_capital(why)}. Its decision is not in the recorded sample.")


def _transfer(move: Migration) -> MoveStep:
    if move.cache is not None:
        done = move.cache is CacheFate.MOVED
        return MoveStep(words="Transfer", state="done" if done else "none", at=None, told=transfer_in_words(move))
    if move.tokens_moved:
        were = "was" if move.tokens_moved == 1 else "were"
        told = f"{amount(move.tokens_moved, 'token')} of KV cache {were} fetched from {move.origin}. How long it took is not recorded."
        return MoveStep(words="Transfer", state="done", at=None, told=told)
    if move.tokens_recomputed:
        underway = move.outcome is MoveOutcome.UNDERWAY
        to = f"{amount(move.tokens_recomputed, 'token', 'are' if underway else '')} {'to' if underway else 'had to'}"
        told = f"Nothing was copied: {to} be computed again on {move.destination}."
    else:
        told = f"Nothing was copied: {move.origin} was not known to have cached anything that {move.destination} lacked."
    return MoveStep(words="Transfer", state="none", at=None, told=told)


def _homes(move: Migration, history: list[BindingHistoryItem] | None) -> tuple[MoveStep, MoveStep]:
    after = next((one for one in history or () if one.migration == move.id), None)
    before = None if after is None else next((one for one in history or () if one.version == after.version - 1), None)
    if after is None:
        why = "The session's history could not be read." if history is None else "The session's history does not reach back so far."
        cutover, release = (MoveStep(words=words, state="unknown", at=None, told=why) for words in ("Cutover", "Release"))
        return cutover, release
    told = f"Binding {after.version}: from here on the session's requests go to {after.instance}."
    cutover = MoveStep(words="Cutover", state="done", at=after.bound_at, told=told)
    if before is None or before.released_at is None:
        return cutover, MoveStep(
            words="Release", state="unknown", at=None, told=f"When {move.origin} released the session is not recorded."
        )
    late = (after.bound_at - before.released_at).total_seconds()
    when = "in the same instant" if late == 0 else f"{formats.seconds(late)} earlier; no instance held it meanwhile"
    told = f"{before.instance} released the session {when}, after {formats.span((before.released_at - before.bound_at).total_seconds())}."
    return cutover, MoveStep(words="Release", state="done", at=before.released_at, told=told)


_FATES = {
    CacheFate.UNNAMED: "recomputed: not handed on",
    CacheFate.REFUSED: "recomputed: refused",
    CacheFate.LOST: "recomputed: no answer",
    CacheFate.LATE: "recomputed: too slow",
}


def cache_words(move: Migration | ReRoute) -> str:
    """Describe in a few words, for a list, whether the KV cache was transferred."""
    if move.cache is CacheFate.MOVED or (move.cache is None and move.tokens_moved):
        return f"{amount(move.tokens_moved, 'token')} moved"
    if move.cache is not None:
        return _FATES[move.cache]
    return "recomputed" if move.tokens_recomputed else "nothing to move"


def seconds_won(move: Migration | ReRoute) -> float | None:
    """Return the seconds that the move saved: the TTFT predicted for the case that the request stayed on its instance,
    minus the actual TTFT. Negative if time was lost, None if either is unknown.
    """
    stay, actual = move.predicted_source_ttft_seconds, move.actual_ttft_seconds
    return None if stay is None or actual is None else stay - actual


def net_effect(move: Migration | ReRoute) -> NetEffect:
    stay, actual, net = move.predicted_source_ttft_seconds, move.actual_ttft_seconds, seconds_won(move)
    if net is None:
        missing = (
            "the request is still in progress"
            if move.outcome is MoveOutcome.UNDERWAY
            else "no first token was reported for the request that moved"
            if actual is None
            else "no time was predicted for staying"
        )
        return NetEffect(value="not known", told=f"{_capital(missing)}.", level="")
    told = f"{formats.seconds(stay)} predicted for staying, minus {formats.seconds(actual)} measured."
    if net > 0 and not move.paid_off:
        told += " This gain had not been predicted."
    return NetEffect(value=formats.won(net), told=told, level="good" if move.paid_off else "bad" if move.paid_off is False else "")


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
