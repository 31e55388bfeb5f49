"""Turns a trace into the requests of one run. The trace is cut, scaled to a rate and spread in time. Block ids and
sessions depend on the seed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from random import Random
from typing import Literal

import numpy as np

from fairlead.tables import DEFAULT_CLASS
from fairlead_simulator.errors import WorkloadImpossible
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.traces.descriptions import IdealCache
from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.traces.sessions import Sessions, find_sessions

STRETCHES = 10
"""Number of equal parts into which `exchanged` divides a workload's time. Only sessions that begin in the same part
exchange their start times.
"""
_MASK = 0xFFFF_FFFF_FFFF_FFFF


Spread = Literal["random", "even", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Rows of a trace, ready to be planned at any rate. `seconds` has each row's arrival time after the first
    timestamp; rows with equal timestamps are spread evenly over the gap to the next timestamp.
    """

    rows: tuple[TraceRow, ...]
    seconds: tuple[float, ...]
    gaps: tuple[tuple[float, float], ...]
    """For each row: its timestamp, and the gap from it to the next timestamp, both in seconds."""
    sessions: tuple[str | None, ...]
    tenants: tuple[str, ...] = ()
    """The tenant of each row; empty = all rows belong to one tenant."""
    classes: tuple[str, ...] = ()
    """The priority class of each row; empty = all rows have the default class."""
    dropped: int = 0
    """Number of rows that were left out because their prompt was too long."""
    found_sessions: Sessions | None = None
    """The sessions of the rows. A row that names no session has an inferred session. None if the workload was loaded
    without inferring sessions.
    """

    @property
    def native_rate(self) -> float:
        """Requests per second as recorded; 0 if all requests arrive at the same time."""
        span = self.seconds[-1] - self.seconds[0]
        return (len(self.rows) - 1) / span if span > 0 else 0.0


def load_workload(rows: Iterable[TraceRow], *, requests: int | None, max_input: int | None, infer_sessions: bool) -> Workload:
    """Return the first `requests` rows whose prompt is shorter than `max_input` tokens; None = no limit. Rows that are
    left out leave gaps in the arrival times.

    If `infer_sessions`, rows without a session get a session that is inferred from prefixes and times, as in `fairlead
    replay`.
    """
    kept: list[TraceRow] = []
    seconds: list[float] = []
    gaps: list[tuple[float, float]] = []
    dropped = 0
    for stamp, gap, group in _groups(rows):
        if requests is not None and len(kept) >= requests:
            break
        for position, row in enumerate(group):
            if max_input is not None and row.input_length >= max_input:
                dropped += 1
            elif requests is None or len(kept) < requests:
                kept.append(row)
                seconds.append(stamp + gap * position / len(group))
                gaps.append((stamp, gap))
    found = find_sessions(kept) if infer_sessions else None
    return Workload(
        rows=tuple(kept),
        seconds=tuple(seconds),
        gaps=tuple(gaps),
        sessions=tuple(row.session for row in kept) if found is None else found.names,
        dropped=dropped,
        found_sessions=found,
    )


def _groups(rows: Iterable[TraceRow]) -> Iterator[tuple[float, float, list[TraceRow]]]:
    """Yield the groups of rows with equal timestamps. Each group is a tuple of three: the seconds from the workload's
    first timestamp to the group's timestamp; the gap in seconds to the next timestamp (for the last group, the gap
    before it); and the rows.
    """
    first: float | None = None
    gap = 0.0
    stamp = 0.0
    group: list[TraceRow] = []
    for row in rows:
        at = row.timestamp_ms / 1e3
        if first is None:
            first = at
        at -= first
        if group and at != stamp:
            gap = at - stamp
            yield stamp, gap, group
            group = []
        stamp = at
        group.append(row)
    if group:
        yield stamp, gap, group


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalPlan:
    """The rates and times at which a workload's requests arrive in a run.

    Rates are in requests per second. The first `warmup` requests are not measured, and may arrive at a rate of their
    own.
    """

    rate: float
    warmup: int = 0
    warmup_rate: float | None = None
    spread: Spread = "random"
    """The arrival of rows with equal timestamps: at random times in the gap to the next timestamp (drawn with the
    seed), at equal distances in this gap, or all at once.
    """
    seed: int = 0
    closed_loop: bool = False


def plan_jobs(workload: Workload, plan: ArrivalPlan) -> list[Job]:
    """Return the jobs of one run, in order of arrival. In a closed loop, only the first turn of each session has an
    arrival time; the other turns arrive when the previous turn has ended.

    Block ids are scrambled with the seed, so that a policy's hashing gets different keys for each seed; equal blocks
    keep equal ids. Raises WorkloadImpossible for a closed loop if a row lacks its session or its delay.
    """
    if plan.closed_loop:
        check_closed_loop(workload)
    arrives_at = arrivals(workload, plan)
    scrambled = _scrambled(workload, plan.seed)
    begin = 0
    jobs: list[Job] = []
    latest: dict[str, Job] = {}
    for index, row in enumerate(workload.rows):
        end = begin + row.full_blocks
        blocks = tuple(scrambled[begin:end])
        begin = end
        session = workload.sessions[index]
        job = Job(
            index=index,
            arrives_at=arrives_at[index],
            input_tokens=row.input_length,
            output_tokens=max(1, row.output_length),
            blocks=blocks,
            session=session,
            tenant=workload.tenants[index] if workload.tenants else "",
            priority_class=workload.classes[index] if workload.classes else DEFAULT_CLASS,
        )
        if plan.closed_loop and session is not None:
            before = latest.get(session)
            if before is not None:
                before.next_job = job
                before.next_pause = (row.pause_ms or 0.0) / 1e3
                job.arrives_at = -1.0
            latest[session] = job
        jobs.append(job)
    return jobs


def check_closed_loop(workload: Workload) -> None:
    """Raise WorkloadImpossible if a row lacks the data for a closed loop: its session or, after the first turn, its
    delay.
    """
    begun: set[str] = set()
    for number, row in enumerate(workload.rows, start=1):
        field = "session_id" if row.session is None else "delay" if row.session in begun and row.pause_ms is None else None
        if field is not None:
            raise WorkloadImpossible(
                f"request {number} has no {field}; --closed-loop needs it (fairlead traces generate --kind agentic has it)"
            )
        begun.add(row.session or "")


def exchanged(workload: Workload, seed: int) -> Workload:
    """Return another sample of the same traffic: a workload in which sessions have exchanged their start times at
    random. For seed 0, return the workload itself.
    """
    if seed == 0 or len(workload.rows) < 2:
        return workload
    turns: dict[str | int, list[int]] = {}
    for index, session in enumerate(workload.sessions):
        turns.setdefault(index if session is None else session, []).append(index)
    at = list(workload.seconds)
    for sessions in _by_stretch(workload, list(turns.values())):
        begun = [workload.seconds[one[0]] for one in sessions]
        Random(f"starts/{seed}/{begun[0]}").shuffle(begun)
        for start, own in zip(begun, sessions, strict=True):
            for index in own:
                at[index] = start + workload.seconds[index] - workload.seconds[own[0]]
    return _in_order(workload, at)


def _by_stretch(workload: Workload, sessions: list[list[int]]) -> list[list[list[int]]]:
    """Return the sessions grouped by the part of the workload's time (`STRETCHES`) in which they begin. Parts in which
    no session begins are left out.
    """
    first, length = workload.seconds[0], (workload.seconds[-1] - workload.seconds[0]) / STRETCHES
    found: dict[int, list[list[int]]] = {}
    for session in sessions:
        place = int((workload.seconds[session[0]] - first) / length) if length > 0 else 0
        found.setdefault(min(place, STRETCHES - 1), []).append(session)
    return list(found.values())


def _in_order(workload: Workload, at: list[float]) -> Workload:
    order = sorted(range(len(at)), key=lambda index: (at[index], index))
    seconds = tuple(at[index] for index in order)
    gaps = [after - before for before, after in pairwise(seconds)]
    return replace(
        workload,
        rows=tuple(workload.rows[index] for index in order),
        seconds=seconds,
        gaps=tuple(zip(seconds, (*gaps, gaps[-1]), strict=True)),
        sessions=tuple(workload.sessions[index] for index in order),
        tenants=tuple(workload.tenants[index] for index in order) if workload.tenants else (),
        classes=tuple(workload.classes[index] for index in order) if workload.classes else (),
    )


def ideal_hits(workload: Workload) -> tuple[list[int], IdealCache]:
    """Return, for each row, the number of its prompt tokens that an unlimited cache shared by all instances would hold.
    Also return this cache, which counts the tokens of all rows.
    """
    cache = IdealCache()
    return [cache.add(row) for row in workload.rows], cache


def arrivals(workload: Workload, plan: ArrivalPlan) -> list[float]:
    """Return the arrival times in seconds. The gaps between arrivals are scaled so that the warm-up and the measured
    part each have the mean rate of the plan. If all rows of a part have the same timestamp, they arrive at equal
    distances.
    """
    seconds = _spread(workload, plan)
    warmup = min(plan.warmup, len(seconds))
    warm = _stretched(seconds[:warmup], plan.warmup_rate or plan.rate, 0.0)
    start = warm[-1] + 1 / plan.rate if warm else 0.0
    return warm + _stretched(seconds[warmup:], plan.rate, start)


def _spread(workload: Workload, plan: ArrivalPlan) -> Sequence[float]:
    if plan.spread == "even":
        return workload.seconds
    if plan.spread == "none":
        return [stamp for stamp, _ in workload.gaps]
    rng = Random(f"arrivals/{plan.seed}")
    # Gaps do not overlap, so sorting only orders the rows of each stamp.
    return sorted(stamp + gap * rng.random() for stamp, gap in workload.gaps)


def _stretched(seconds: Sequence[float], rate: float, start: float) -> list[float]:
    if not seconds:
        return []
    span = seconds[-1] - seconds[0]
    if span <= 0:
        return [start + place / rate for place in range(len(seconds))]
    factor = (len(seconds) - 1) / rate / span
    return [start + (second - seconds[0]) * factor for second in seconds]


def _scrambled(workload: Workload, seed: int) -> list[int]:
    """Return the block ids of all rows, one row after the other, scrambled with the seed. SplitMix64's finalizer
    scrambles them; it is a bijection of 64-bit numbers, so different ids stay different.
    """
    full = chain.from_iterable(row.hash_ids[: row.full_blocks] for row in workload.rows)
    try:
        ids = np.fromiter(full, dtype=np.int64).view(np.uint64)
    except OverflowError:  # some ids need all 64 bits, or more
        full = chain.from_iterable(row.hash_ids[: row.full_blocks] for row in workload.rows)
        ids = np.fromiter((block & _MASK for block in full), dtype=np.uint64)
    salt = int(_mixed(np.array([seed & _MASK], dtype=np.uint64))[0])
    renamed: list[int] = _mixed(ids ^ np.uint64(salt)).tolist()
    return renamed


def _mixed(values: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Return each value after SplitMix64's finalizer, which is computed in arithmetic modulo 2^64."""
    mixed = values + np.uint64(0x9E37_79B9_7F4A_7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return mixed ^ (mixed >> np.uint64(31))
