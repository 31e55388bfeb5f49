"""The printed report of a run: a table of operations, hit rates, and whether each promise was kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.pool_operations.accounts import Cost, by_window, hit_rate, lost_answers
from benchmarks.pool_operations.loaded_pools import LoadedPool
from benchmarks.pool_operations.operations import StepVerdict
from benchmarks.pool_operations.work import Work

from fairlead_simulator.replay.outcomes import ReplayVerdict

KEPT_HIT_RATE = 0.9
DRAIN_SECONDS = 15.0


def operations_table(costs: Sequence[Cost]) -> list[str]:
    """Return a Markdown table, one line per operation."""
    lines = [
        "| operation | settled after | requests | failed | refused | sessions moved, by cause | came back | hit rate before → after | of the ideal |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cost in costs:
        moved = ", ".join(f"{count} {cause}" for cause, count in cost.moved.most_common()) or "none"
        lines.append(
            f"| {cost.operation.words} | {cost.operation.ended - cost.operation.begun:.0f} s | {cost.requests} | {len(cost.failed)} "
            f"| {cost.refused} | {moved} | {cost.bounced} | {cost.before.share:.3f} → {cost.after.share:.3f} ({cost.kept:.0%}) "
            f"| {cost.before.of_ideal:.0%} → {cost.after.of_ideal:.0%} |"
        )
    return lines


def victims_table(costs: Mapping[str, Sequence[Cost]]) -> list[str]:
    """Return a table that shows each scale-in of one pool beside the scale-in of the other pool."""
    lines = [
        "| scale-in | victims | removed, of the newest | settled after | failed | sessions moved | hit rate before → after | of the ideal |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for of_pool in zip(*costs.values(), strict=True):
        for name, cost in zip(costs, of_pool, strict=True):
            lines.append(
                f"| {cost.operation.words} | {name} | {cost.operation.removed}, {cost.operation.newest_removed} "
                f"| {cost.operation.ended - cost.operation.begun:.0f} s | {len(cost.failed)} | {cost.moved.total()} "
                f"| {cost.before.share:.3f} → {cost.after.share:.3f} ({cost.kept:.0%}) "
                f"| {cost.before.of_ideal:.0%} → {cost.after.of_ideal:.0%} ({cost.kept_of_ideal:.0%}) |"
            )
    return lines


def load_lines(pool: LoadedPool, work: Work, instances: int, window: float) -> list[str]:
    """Return lines about the load.

    They have the requests, their outcomes, how busy the prefill instances were, and the hit rate of each window.
    """
    verdicts = Counter(one.verdict for one in pool.served)
    whole = hit_rate(pool.served, work, 0.0, float("inf"))
    seconds = max(one.due_seconds for one in pool.served)
    computed = (whole.prompt_tokens - whole.cached_tokens) / seconds / instances / work.prefill_tokens_per_second
    windows = ", ".join(f"{rate.of_ideal:.0%}" for _, rate in by_window(pool.served, work, window))
    return [
        f"{pool.name}: {len(pool.served)} requests in {seconds:.0f} s: {verdicts[ReplayVerdict.SERVED]} served, "
        f"{verdicts[ReplayVerdict.FAILED]} failed, {verdicts[ReplayVerdict.REJECTED]} refused, "
        f"{verdicts[ReplayVerdict.CANCELLED]} given up when the load was stopped",
        f"  hit rate {whole.share:.3f}, of the ideal {whole.of_ideal:.0%}; by windows of {window:.0f} s: {windows}",
        f"  prompt tokens computed are {computed:.0%} of what {instances} prefill instances can",
    ]


def loss_lines(pool: LoadedPool, course: StepVerdict, retries: int) -> list[str]:
    """Return lines about the loss of the node; none if no node was lost."""
    loss = course.loss
    if loss is None:
        return []
    cut, _ = lost_answers((one for one in pool.served if one.verdict is ReplayVerdict.FAILED), loss)
    roles = Counter(loss.instances.values())
    return [
        f"lost node: {roles['prefill']} prefill and {roles['decode']} decode instances with {loss.in_flight} requests in flight; "
        f"{len(cut)} answers were cut in the middle, {retries - loss.retries_before} attempts were repeated elsewhere since",
        *(
            f"  cut: request {one.index} on {one.decode or one.instance}, sent {loss.seconds - one.due_seconds:.1f} s before, {one.reason}"
            for one in cut
        ),
    ]


def drain_lines(course: StepVerdict) -> list[str]:
    """Return lines about the drain; none if there was no drain."""
    if course.drained is None:
        return []
    drained = course.drained
    return [f"drain: {drained.seconds:.1f} s, {drained.tokens} tokens of the long answer had come by then; {drained.error or 'it went on'}"]


def _refusals(pool: LoadedPool) -> str:
    told = [one for one in pool.served if one.verdict is ReplayVerdict.REJECTED and one.ended_seconds is not None]
    return "".join(f"\n      request {one.index} at {one.ended_seconds:.1f} s: {one.status} {one.reason}" for one in told[:20])


def promises(
    pool: LoadedPool, costs: Sequence[Cost], course: StepVerdict, verify: tuple[bool, str], contradictions: Sequence[str]
) -> dict[str, bool]:
    """Return for each promise whether it was kept."""
    failed = [one for one in pool.served if one.verdict is ReplayVerdict.FAILED]
    refused = sum(one.verdict is ReplayVerdict.REJECTED for one in pool.served)
    while_short = sum(cost.refused for cost in costs if course.loss is not None and cost.operation.begun >= course.loss.seconds - 1.0)
    _, others = lost_answers(failed, course.loss)
    told = "".join(
        f"\n      request {one.index} at {one.ended_seconds:.1f} s: {one.status} {one.reason} from {one.decode or one.instance}"
        for one in others[:20]
        if one.ended_seconds is not None
    )
    found = {
        f"{len(others)} requests failed that the lost node was not answering{told}": not others,
        f"{refused} requests were refused, {while_short} of them while the lost instances were missing{_refusals(pool)}": refused
        == while_short,
    }
    for cost in costs:
        if cost.operation.scaled_in:
            found[
                f"{cost.operation.words}: of what an endless cache had had, {cost.kept_of_ideal:.0%} as much is hit as before (at least "
                f"{KEPT_HIT_RATE:.0%}); the hit rate, of other prompts, is {cost.kept:.0%}"
            ] = cost.kept_of_ideal >= KEPT_HIT_RATE
    drained = course.drained
    if drained is not None:
        found[f"the drain took {drained.seconds:.1f} s (at most {DRAIN_SECONDS:.0f} s), and the long answer went on"] = (
            drained.seconds <= DRAIN_SECONDS and not drained.error
        )
    consistent, words = verify
    found[f"fairlead verify: {words}"] = consistent
    found[f"contradictions in the stored record: {'; '.join(contradictions) or 'none'}"] = not contradictions
    return found
