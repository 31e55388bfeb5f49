"""Measures the CPU time of a routing decision, of a request's whole way through the scheduler, and of the work that the
router does 50 times a second while requests wait.

A decision hashes a prompt of 64 KB and chooses an instance.

    .venv/bin/python -m benchmarks.decisions [--instances 64 512] [--requests 4000] [--queued 100] [--tenants 1 100]
        [--peer-python P]

Prints p50 and p99 in microseconds of CPU time per policy and pool size, from an index filled with 200,000 blocks. The
machine's other work hardly affects these figures. The time of other programs does not count. A request during which, or
right before which, the thread was preempted does not count either, because it finds the thread's caches cold. The
machine's speed for the hash alone is printed first. Then come ticks, first tokens and submits of the policy `fairlead`
with full queues, also with many tenants that share them fairly.

With `--peer-python`, the last figures are of the parts of NVIDIA Dynamo's router that can be called from Python (see
`decision_peer.py`). They are wall time, because these parts have their own threads. So their p99 includes the machine's
other work, and only their medians can be compared. Other peers decide inside their proxies; `gateway.py` compares
Fairlead with them.
"""

import argparse
import gc
import json
import math
import os
import random
import resource
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from time import thread_time_ns

import numpy as np
from benchmarks.command_line import a_file, count

from fairlead.instances import InstanceState
from fairlead.predictors.fitting import FitSettings
from fairlead.predictors.learners import Learner
from fairlead.predictors.samples import Samples
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.knowledge.prefixes import block_hashes, first_bytes_hash
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import (
    FAIR_TENANTS,
    EarlyRejectionFacts,
    EngineFacts,
    InstanceEntry,
    ModelledFacts,
    PoolKey,
    RoutingFacts,
    RoutingTable,
    SessionFacts,
    SloFacts,
)

PROMPT_BYTES = 65_536
BLOCK_BYTES = 2_048
BLOCKS_IN_INDEX = 200_000


def table_of(policy: str, instances: int, prefills_in_flight: int = 0, **parameters: float) -> RoutingTable:
    """Return the routing table of a pool with `instances` serving instances under `policy`."""
    entries = tuple(
        InstanceEntry(id=f"chat-b{index:04d}", address="127.0.0.1:8000", state=InstanceState.SERVING) for index in range(instances)
    )
    return RoutingTable(
        pool=PoolKey(namespace="default", name="chat"),
        uid="u",
        version=1,
        generation=1,
        model="m",
        engine=EngineFacts(modelled=ModelledFacts(kv_transfer_bytes_per_second=25e9, decode_base_seconds=0.02)),
        routing=RoutingFacts(policy=policy, parameters=parameters, prefills_in_flight=prefills_in_flight),
        session=SessionFacts(),
        slo=SloFacts(),
        early_rejection=EarlyRejectionFacts(),
        instances=entries,
    )


def prompts_of(count: int, source: random.Random) -> list[bytes]:
    """Return `count` prompts of 64 KB. All prompts begin with the same system block. The prompts of a group also share
    the history that follows, whose length differs from group to group.
    """
    system = source.randbytes(BLOCK_BYTES)
    histories = [source.randbytes(PROMPT_BYTES) for _ in range(50)]
    prompts: list[bytes] = []
    for _ in range(count):
        history = histories[source.randrange(50)][: BLOCK_BYTES * source.randrange(4, 31)]
        prompts.append((system + history + source.randbytes(PROMPT_BYTES))[:PROMPT_BYTES])
    return prompts


def percentiles(durations: list[int]) -> tuple[float, float]:
    """Return p50 and p99 in microseconds; NaN if there are no durations."""
    if not durations:
        return math.nan, math.nan  # every request was preempted
    ordered = sorted(durations)
    return ordered[len(ordered) // 2] / 1000, ordered[int(len(ordered) * 0.99)] / 1000


def hashing_durations(prompts: list[bytes]) -> list[int]:
    """Return the nanoseconds to hash each prompt."""
    durations: list[int] = []
    for text in prompts:
        start = thread_time_ns()
        block_hashes(text, BLOCK_BYTES)
        durations.append(thread_time_ns() - start)
    return durations


def preemptions() -> int:
    """Return the number of times that this thread was preempted."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def measure(policy: str, instances: int, requests: int, prompts: list[bytes]) -> tuple[list[int], list[int]]:
    """Return two lists with nanoseconds for each request. The first is the time to hash the prompt and choose an
    instance. The second is the time of the request's whole way: hash, submit, first token, completion.
    """
    source = random.Random(7)
    scheduler = PoolScheduler(table_of(policy, instances), "router-0", 1, sample_rate=0.01)
    fill_index(scheduler, instances, source)
    teach(scheduler)
    decisions: list[int] = []
    whole: list[int] = []
    running: list[str] = []
    calm = 0
    preempted = preemptions()
    for number in range(requests):
        text = prompts[number % len(prompts)]
        now = number * 0.01
        session = f"s{number % 200}"

        start = thread_time_ns()
        blocks = block_hashes(text, BLOCK_BYTES)
        first = first_bytes_hash(text, BLOCK_BYTES, blocks)
        request = RoutingRequest(
            id=f"r{number}", arrived_at=now, prompt_tokens=PROMPT_BYTES // 4, blocks=blocks, first_bytes_hash=first, session=session
        )
        scheduler.choose(request, now)
        decided = thread_time_ns() - start

        start = thread_time_ns()
        outcomes = scheduler.submit(request, now)
        submitted = thread_time_ns() - start
        assert isinstance(outcomes[0], Dispatch)
        running.append(request.id)
        finishing = 0
        if len(running) > 200:
            finished = running.pop(0)
            start = thread_time_ns()
            scheduler.first_token(finished, now)
            scheduler.complete(finished, now, 100, None)
            finishing = thread_time_ns() - start
        before, preempted = preempted, preemptions()
        calm = calm + 1 if preempted == before else 0
        if number > requests // 4 and calm > 1:
            decisions.append(decided)
            whole.append(submitted + finishing)
        if number % 500 == 0:
            scheduler.take_records(now)
    return decisions, whole


def teach(scheduler: PoolScheduler) -> None:
    """Give a learning policy a model of the published size. Its predictions do not matter, because the amount of
    computation does not depend on them.
    """
    policy = scheduler.learns_online
    if policy is None:
        return
    learner = Learner(replace(policy.learner_settings, fit=FitSettings(epochs=1, least_steps=0)), 1)
    width = len(policy.learner_settings.feature_names)
    features = np.random.default_rng(1).uniform(0, 1e7, (1000, width)).astype(np.float32)
    features[0] = 0.0
    learner.add(Samples(features=features, ttft_seconds=np.ones(1000, dtype=np.float32)))
    policy.adopt(learner.train())


def fill_index(scheduler: PoolScheduler, instances: int, source: random.Random) -> None:
    """Fill the scheduler's index: it then believes that its instances hold 200,000 blocks."""
    for number in range(BLOCKS_IN_INDEX // 32):
        blocks = tuple(source.getrandbits(64) for _ in range(32))
        name = f"fill{number}"
        scheduler.submit(RoutingRequest(id=name, arrived_at=0.0, prompt_tokens=32, blocks=blocks, first_bytes_hash=blocks[0]), 0.0)
        scheduler.first_token(name, 0.0)
        scheduler.complete(name, 0.0, 1, None)
    scheduler.take_records(1.0, final=True)


NEVER_LATE_ONES = {"calm_load": 0.0, "late_load": 0.0, "late_share": 0.0}


def measure_full_queues(instances: int, queued: int, tenants: int = 0, ticks: int = 600) -> dict[str, list[int]]:
    """Return lists of nanoseconds by name: of each tick; of each first token, with the dispatches that it causes; of
    each submit; and of each tick while all waiting requests are late. The first quarter of each list is left out.

    Meanwhile `queued` requests wait for each instance, from `tenants` tenants that share the queues fairly; 0 means no
    tenants. The engines take 0.3 to 1.6 s for a prompt, and a new request arrives for each request that is sent to an
    engine. At the end no more requests arrive. Then the waiting requests are late, and they are held back for the one
    instance that still computes, so these ticks find idle engines.
    """
    source = random.Random(11)
    table = table_of("fairlead", instances, 1, **NEVER_LATE_ONES)
    if tenants:
        table = replace(table, routing=replace(table.routing, fairness=FAIR_TENANTS))
    scheduler = PoolScheduler(table, "router-0", 1, sample_rate=0.0)
    due: list[tuple[float, str]] = []
    """A heap of (time of the first token, request id) of the sent requests."""
    counted, now = 0, 0.0
    durations: dict[str, list[int]] = {"tick": [], "first token": [], "submit": [], "tick, all late,": []}

    def see(outcomes: Sequence[Dispatch | Refusal]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Dispatch):
                heappush(due, (now + outcome.miss_tokens / 6250, outcome.request.id))

    def fill() -> None:
        nonlocal counted
        while scheduler.waiting() < instances * queued:
            counted += 1
            blocks = tuple(source.getrandbits(64) for _ in range(4))
            tokens = source.randrange(2_000, 10_000)
            asked = RoutingRequest(
                id=f"q{counted}",
                arrived_at=now,
                prompt_tokens=tokens,
                blocks=blocks,
                first_bytes_hash=blocks[0],
                tenant=f"t{counted % tenants}" if tenants else "",
            )
            start = thread_time_ns()
            outcomes = scheduler.submit(asked, now)
            durations["submit"].append(thread_time_ns() - start)
            see(outcomes)

    fill()
    durations["submit"].clear()
    for number in range(ticks):
        now = number * 0.02
        while due and due[0][0] <= now:
            _, name = heappop(due)
            start = thread_time_ns()
            outcomes = scheduler.first_token(name, now)
            durations["first token"].append(thread_time_ns() - start)
            see(outcomes)
            see(scheduler.complete(name, now, 100, None))
        start = thread_time_ns()
        outcomes = scheduler.tick(now)
        durations["tick"].append(thread_time_ns() - start)
        see(outcomes)
        fill()
    while len(due) > 1:
        now, name = heappop(due)
        see(scheduler.first_token(name, now))
        see(scheduler.complete(name, now, 100, None))
    for number in range(ticks):
        start = thread_time_ns()
        see(scheduler.tick(now + number * 0.02))
        durations["tick, all late,"].append(thread_time_ns() - start)
    scheduler.take_records(now, final=True)
    return {what: found[len(found) // 4 :] for what, found in durations.items()}


def at_least_some(text: str) -> int:
    """Return a whole number of 20 or more. With fewer requests, too few would be left after the first quarter is
    dropped. Raises argparse.ArgumentTypeError.
    """
    found = count(text)
    if found < 20:
        raise argparse.ArgumentTypeError(f"{found} are too few to leave any when the first quarter is not counted; give 20 or more")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--instances", type=count, nargs="+", default=[64, 512])
    parser.add_argument("--requests", type=at_least_some, default=4000)
    parser.add_argument("--queued", type=count, default=100, help="requests that wait for each instance")
    parser.add_argument(
        "--tenants",
        type=count,
        nargs="+",
        default=[1, 100],
        help="numbers of tenants that share full queues fairly; full queues without tenants are measured, too",
    )
    parser.add_argument("--policies", nargs="+", default=list(BUILT_IN.names), choices=BUILT_IN.names)
    parser.add_argument("--peer-python", type=a_file, help="a Python that has ai-dynamo-runtime")
    arguments = parser.parse_args()
    prompts = prompts_of(400, random.Random(3))
    gc.collect()
    gc.freeze()
    p50, p99 = percentiles(hashing_durations(prompts))
    print(f"hash 64 KB in 32 blocks: p50 {p50:.1f} us, p99 {p99:.1f} us")
    print(f"{'policy':<24}{'instances':>10}{'hash+choose p50':>18}{'p99':>9}{'submit..complete p50':>23}{'p99':>9}   (us)")
    for policy in arguments.policies:
        for instances in arguments.instances:
            decisions, whole = measure(policy, instances, arguments.requests, prompts)
            (decided_p50, decided_p99), (whole_p50, whole_p99) = percentiles(decisions), percentiles(whole)
            print(f"{policy:<24}{instances:>10}{decided_p50:>18.1f}{decided_p99:>9.1f}{whole_p50:>23.1f}{whole_p99:>9.1f}")
    for instances in arguments.instances:
        for tenants in (0, *arguments.tenants):
            shared = f", {tenants} tenants" if tenants else ""
            for what, found in measure_full_queues(instances, arguments.queued, tenants).items():
                p50, p99 = percentiles(found)
                told = f"{what} with {arguments.queued} queued{shared}"
                print(f"{told:<46}{instances:>10}   p50 {p50:.1f} us, p99 {p99:.1f} us")
    if arguments.peer_python is None:
        print("peer not measured: give --peer-python, a Python that has ai-dynamo-runtime")
    else:
        print_peer(arguments.peer_python, arguments.instances)


def print_peer(python: Path, sizes: list[int]) -> None:
    """Measure NVIDIA Dynamo's router parts in a separate process, and print their figures."""
    command = [str(python), str(Path(__file__).with_name("decision_peer.py")), *map(str, sizes)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"DYN_LOG": "off"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        print(f"peer failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
        return
    for what, size, p50, p99 in json.loads(done.stdout.strip().splitlines()[-1]):
        print(f"{'dynamo ' + what:<34}{size or '':>10}   p50 {p50:.1f} us, p99 {p99:.1f} us (wall)")


if __name__ == "__main__":
    main()
