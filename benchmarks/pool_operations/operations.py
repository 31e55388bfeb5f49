"""Operations on pools under load, one after another, each timed until its pool has settled."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.pool_operations.loaded_pools import MERGE, LoadedPool, NeverCame, counted, roles_of, wait_until
from benchmarks.pool_operations.nodes import SECOND_NODE, lose

from fairlead_testing.running.long_answer import long_answer

LIMIT_SECONDS = 900.0
LONG_ANSWER_TOKENS = 20_000
"""The number of tokens of an answer that takes ten minutes with decode steps of 30 ms."""
NOTICE_SECONDS = 30.0
"""Seconds from the cordon of a node to its first eviction, because people who maintain nodes cordon them first."""
NEWEST = "newest"
"""The name of the pool whose newest instances are made to leave first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation on a pool. Times are in seconds since the pool's load began.

    `unix` is the Unix time at which the operation began.
    """

    words: str
    pool: str
    begun: float
    ended: float
    unix: float
    scaled_in: str = ""
    """The role that was scaled in; empty if none was."""
    removed: int = 0
    """Number of instances that existed before the operation and are gone after it."""
    newest_removed: int = 0
    """Number of removed instances that were among the newest of the scaled-in role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The loss of a node: the pool's instances on it, and their requests in flight right before."""

    seconds: float
    instances: Mapping[str, str]
    """The role of each instance."""
    in_flight: int
    retries_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The result of a drain: the seconds from the annotation to the end of the instance, and the number of tokens that
    the long answer had then.
    """

    seconds: float
    tokens: int
    error: str = ""
    """The error with which the answer broke off; empty if it was complete."""


@dataclass(slots=True, kw_only=True)
class StepVerdict:
    """Carries out operations on pools, and keeps a list of them. After each operation, the load continues for `window`
    seconds.
    """

    window: float
    operations: list[Operation] = field(default_factory=list)
    loss: Loss | None = None
    drained: Drained | None = None

    def run(
        self,
        words: str,
        pools: Sequence[LoadedPool],
        act: Callable[[LoadedPool], None],
        settled: Callable[[LoadedPool], bool],
        scaled_in: str = "",
    ) -> None:
        """Carry out `act` on all pools at once and wait until each has settled. Raises NeverCame."""
        before = {pool.name: (pool.now(), time.time(), instances_by_role(pool)) for pool in pools}
        for pool in pools:
            act(pool)
        waiting = list(pools)
        deadline = time.monotonic() + LIMIT_SECONDS
        while waiting:
            time.sleep(1.0)
            for pool in [pool for pool in waiting if settled(pool)]:
                waiting.remove(pool)
                begun, unix, there = before[pool.name]
                self._done(words, pool, begun, unix, there, scaled_in)
            if waiting and time.monotonic() > deadline:
                states = Counter((one["role"], one["state"], one["reason"]) for one in waiting[0].instances())
                raise NeverCame(f"not within {LIMIT_SECONDS:.0f} s: {waiting[0].name}: {words}; its instances: {dict(states)}")
        time.sleep(self.window)

    def _done(self, words: str, pool: LoadedPool, begun: float, unix: float, before: Mapping[str, list[str]], scaled_in: str) -> None:
        after = {name for names in instances_by_role(pool).values() for name in names}
        removed = [name for names in before.values() for name in names if name not in after]
        newest = before[scaled_in][-len(removed) :] if scaled_in and removed else []
        done = Operation(
            words=words,
            pool=pool.name,
            begun=begun,
            ended=pool.now(),
            unix=unix,
            scaled_in=scaled_in,
            removed=len(removed),
            newest_removed=len(set(newest).intersection(removed)),
        )
        self.operations.append(done)
        print(f"{done.ended:6.0f} s  {pool.name}: {words} took {done.ended - done.begun:.0f} s", flush=True)


def instances_by_role(pool: LoadedPool) -> dict[str, list[str]]:
    """Return the names of a pool's instances by role, oldest first."""
    found: dict[str, list[str]] = {}
    for pod in pool.pods():
        found.setdefault(pod["metadata"]["labels"]["llm-d.ai/role"], []).append(pod["metadata"]["name"])
    return found


def scale_out_and_in(course: StepVerdict, chat: LoadedPool, newest: LoadedPool, role: str, count: int) -> None:
    """Scale a role from `count` instances to twice as many and back, in both pools. In the pool `newest`, the newest
    instances are removed when the role is scaled back.
    """
    other = {"prefill": "decode", "decode": "prefill"}[role]

    def settled_at(number: int) -> Callable[[LoadedPool], bool]:
        return lambda pool: pool.settled_at({role: number, other: count})

    def scale_in(pool: LoadedPool) -> None:
        if pool.name == NEWEST:
            pool.cordon_newest(role, count)
        pool.scale({role: count})

    both = (chat, newest)
    course.run(f"{role} {count} → {2 * count}", both, lambda pool: pool.scale({role: 2 * count}), settled_at(2 * count))
    course.run(f"{role} {2 * count} → {count}", both, scale_in, settled_at(count), scaled_in=role)


def flip_there_and_back(course: StepVerdict, chat: LoadedPool, count: int) -> None:
    """Flip a decode instance to prefill, and then a prefill instance to decode. Raises NeverCame if a pod was
    replaced.
    """
    names = {pod["metadata"]["name"] for pod in chat.pods()}
    for words, prefill in (("a decode instance becomes prefill", count + 1), ("a prefill instance becomes decode", count)):
        numbers = {"prefill": prefill, "decode": 2 * count - prefill}
        # in one write: of two, the first would make a pod, and the second drain another
        course.run(
            words,
            (chat,),
            lambda pool, numbers=numbers: pool.patch({"roles": roles_of(2 * count, numbers)}),  # type: ignore[misc]
            lambda pool, numbers=numbers: pool.settled_at(numbers),  # type: ignore[misc]
        )
    if names != {pod["metadata"]["name"] for pod in chat.pods()}:
        raise NeverCame("a role flip made or deleted a pod")


def roll_out(course: StepVerdict, chat: LoadedPool, count: int) -> None:
    """Replace every instance by changing an engine setting."""
    names = {pod["metadata"]["name"] for pod in chat.pods()}

    def replaced(pool: LoadedPool) -> bool:
        return names.isdisjoint(pod["metadata"]["name"] for pod in pool.pods()) and pool.settled_at({"prefill": count, "decode": count})

    course.run("rollout of all instances", (chat,), lambda pool: pool.patch({"engine": {"simulated": {"maxRunning": 255}}}), replaced)


def drain_one(course: StepVerdict, chat: LoadedPool, count: int) -> None:
    """Drain an instance that is in the middle of an answer of ten minutes, until it is replaced."""
    model, tokens = str(chat.manifest["spec"]["model"]), LONG_ANSWER_TOKENS
    with long_answer(chat.sandbox.routers[0], model, tokens) as answer:

        def act(pool: LoadedPool) -> None:
            pool.annotate(answer.instance, {"fairlead.dev/drain": "true"})
            wait_until(lambda: pool.is_leaving(answer.instance), "the drain begins", LIMIT_SECONDS, pause=0.1)
            began = time.monotonic()
            wait_until(lambda: pool.is_gone(answer.instance), "the drained instance is gone", LIMIT_SECONDS, pause=0.1)
            course.drained = Drained(seconds=time.monotonic() - began, tokens=answer.tokens)

        course.run(
            "drain of an instance with a long answer", (chat,), act, lambda pool: pool.settled_at({"prefill": count, "decode": count})
        )
        assert course.drained is not None
        if answer.tokens > course.drained.tokens:
            course.drained = replace(course.drained, error=answer.error)
        else:
            course.drained = replace(course.drained, error=answer.error or "the answer did not go on")


def maintain_node(course: StepVerdict, chat: LoadedPool, count: int) -> None:
    """Cordon a node, empty it by evictions as `kubectl drain` does, and uncordon it."""
    sandbox = chat.sandbox

    def cordon(*, on: bool) -> None:
        sandbox.kubernetes("PATCH", f"/api/v1/nodes/{SECOND_NODE}", {"spec": {"unschedulable": on}}, MERGE).raise_for_status()

    there = [pod["metadata"]["name"] for pod in chat.pods() if pod["spec"].get("nodeName") == SECOND_NODE]

    def act(pool: LoadedPool) -> None:
        cordon(on=True)
        time.sleep(NOTICE_SECONDS)
        for name in there:
            wait_until(lambda name=name: pool.evict(name), f"{name} is evicted", LIMIT_SECONDS)  # type: ignore[misc]

    def emptied(pool: LoadedPool) -> bool:
        return set(there).isdisjoint(pod["metadata"]["name"] for pod in pool.pods()) and pool.settled_at(
            {"prefill": count, "decode": count}
        )

    course.run(f"maintenance of a node with {len(there)} instances", (chat,), act, emptied)
    cordon(on=False)


def lose_node(course: StepVerdict, chat: LoadedPool, node: subprocess.Popen[bytes], count: int) -> None:
    """Kill all instances of a node and its kubelet at once, without warning."""
    there = {
        pod["metadata"]["name"]: pod["metadata"]["labels"]["llm-d.ai/role"]
        for pod in chat.pods()
        if pod["spec"].get("nodeName") == SECOND_NODE
    }

    def act(pool: LoadedPool) -> None:
        name = f"default/{pool.name}"
        retries = counted(pool.sandbox, "fairlead_router_retries_total", pool=name)
        in_flight = sum(counted(pool.sandbox, "fairlead_router_in_flight", pool=name, instance=one) for one in there)
        lose(node)
        course.loss = Loss(seconds=pool.now(), instances=there, in_flight=in_flight, retries_before=retries)

    def replaced(pool: LoadedPool) -> bool:
        return pool.settled_at({"prefill": count, "decode": count}, beside=there)  # their pods hang in Terminating

    course.run(f"loss of a node with {len(there)} instances", (chat,), act, replaced)
