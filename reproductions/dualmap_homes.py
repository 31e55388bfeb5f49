"""Counts the sessions of a run, and the keys on the rings, whose instance changes when the pool grows or shrinks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead.routing.knowledge.rings import CandidateRings, HashRing
from fairlead.tables import InstanceEntry
from fairlead_simulator.simulation.jobs import Job, Phase

KEYS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The sessions that a change of the pool moved, among the sessions of the phases before and after it.

    `staying` is the number of sessions whose instance still existed afterwards. `strayed` is the number of those that
    left their instance nevertheless.
    """

    sessions: int
    moved: int
    staying: int
    strayed: int


def session_moves(jobs: Iterable[Job], step: float, within: tuple[float, float], remaining: set[str] | None) -> Step:
    """Return the sessions whose last instance before `step` differs from their first one after it.

    Only sessions that were served both before and after `step` within the time `within` count. `remaining` are the
    instances that still exist afterwards; None if all do.
    """
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for job in sorted(jobs, key=lambda one: (one.arrives_at, one.index)):
        if job.session is None or job.phase is not Phase.FINISHED or not within[0] <= job.arrives_at < within[1]:
            continue
        if job.arrives_at < step:
            before[job.session] = job.instance
        else:
            after.setdefault(job.session, job.instance)
    both = [(before[session], after[session]) for session in before if session in after]
    stay = [(old, new) for old, new in both if remaining is None or old in remaining]
    return Step(
        sessions=len(both), moved=sum(old != new for old, new in both), staying=len(stay), strayed=sum(old != new for old, new in stay)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMoves:
    """Changes of many keys when the pool grows, as shares (0-1).

    `owners`: owners on one ring that changed. `places`: places in pairs of candidates that changed. `kept`: keys that
    keep at least one of their two candidates. `needless`: changed places that went to an old instance, which consistent
    hashing forbids.
    """

    owners: float
    places: float
    kept: float
    needless: float


def key_moves(few: Sequence[InstanceEntry], many: Sequence[InstanceEntry], mode: str) -> KeyMoves:
    """Return the changes of evenly spread keys on the rings when `few` instances become `many`."""
    keys = [(2, number * 0x9E37_79B9_7F4A_7C15 % (1 << 64)) for number in range(KEYS)]
    ring_before, ring_after = HashRing.of(few), HashRing.of(many)
    pairs_before, pairs_after = CandidateRings.of(few, 2, mode), CandidateRings.of(many, 2, mode)
    new = {entry.id for entry in many} - {entry.id for entry in few}
    places = kept = needless = 0
    for key in keys:
        before, after = set(pairs_before.candidates(key)), set(pairs_after.candidates(key))
        places += len(after - before)
        needless += len(after - before - new)
        kept += bool(before & after)
    owners = sum(ring_before.owner(key) != ring_after.owner(key) for key in keys)
    return KeyMoves(owners=owners / KEYS, places=places / (2 * KEYS), kept=kept / KEYS, needless=needless / (2 * KEYS))


def total(steps: Sequence[Step]) -> Step:
    """Return the sums of the steps of several runs."""
    return Step(
        sessions=sum(one.sessions for one in steps),
        moved=sum(one.moved for one in steps),
        staying=sum(one.staying for one in steps),
        strayed=sum(one.strayed for one in steps),
    )
