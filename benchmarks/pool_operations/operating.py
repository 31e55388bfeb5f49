"""The whole run of mode `operations`: two pools under load, all operations, and the report of their costs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pool_operations.accounts import costs_of
from benchmarks.pool_operations.loaded_pools import ROLES, LoadedPool, begin_loads, counted, pool_manifest, roles_of
from benchmarks.pool_operations.operations import (
    NEWEST,
    StepVerdict,
    drain_one,
    flip_there_and_back,
    lose_node,
    maintain_node,
    roll_out,
    scale_out_and_in,
)
from benchmarks.pool_operations.report import drain_lines, load_lines, loss_lines, operations_table, promises, victims_table
from benchmarks.pool_operations.work import Work, trace_rows, work_for

from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_simulator.traces.rows import write_trace
from fairlead_testing.builders.record_facts import contradictions
from fairlead_testing.running.sandbox import RunningSandbox, fairlead

STEPS = ("prefill", "decode", "flip", "maintenance", "rollout", "drain", "node")
"""The possible steps in order: each role is scaled out and in, roles flip, a node is maintained, a rollout, a drain,
and a node is lost.
"""
TPOT_SECONDS = 0.05
BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsSettings:
    """The settings of the command line; times are in seconds."""

    trace: Path | None
    instances: int
    utilisation: float
    rate: float
    window: float
    warm_up: float
    cache_tokens: int
    kv_transfer: bool
    """Whether engines transfer their KV blocks to other engines."""
    steps: tuple[str, ...]
    """The steps of `STEPS` to carry out."""

    def work(self) -> Work:
        """Return a part of the trace that is longer than the run. Raises SimulatorError or ValueError if the trace is
        too short.
        """
        return work_for(
            trace_rows(self.trace),
            rate=self.rate,
            seconds=self.warm_up + 10 * self.window + 1800,
            instances=self.instances,
            utilisation=self.utilisation,
            tpot_seconds=TPOT_SECONDS,
        )


def spec_of(work: Work, cache_tokens: int, *, kv_transfer: bool) -> dict[str, object]:
    """Return the fields of the spec that both pools have, without the roles."""
    moving = {"kvTransfer": {"kind": "Nixl"}} if kv_transfer else {}
    return {
        "engine": {
            "kvCacheTokens": cache_tokens,
            "simulated": {"decodeStep": f"{work.decode_step_seconds * 1e3:.0f}ms", "blockSize": BLOCK_TOKENS, "startup": "5s"},
            **moving,
        },
        "ratio": {"method": "RoleFlip"},
        "slo": {"ttft": "30s", "tpot": f"{TPOT_SECONDS * 1e3:.0f}ms"},
        "drain": {"timeout": "300s"},
    }


def operate(
    course: StepVerdict, chat: LoadedPool, newest: LoadedPool, node: subprocess.Popen[bytes], count: int, steps: Container[str]
) -> None:
    """Carry out the requested operations in order. The second pool is deleted after the comparison of scale-ins."""
    for role in ROLES:
        if role in steps:
            scale_out_and_in(course, chat, newest, role, count)
    if newest.load is not None:
        newest.end_load()
    if "flip" in steps:
        flip_there_and_back(course, chat, count)
    if "maintenance" in steps:
        maintain_node(course, chat, count)
    if "rollout" in steps:
        roll_out(course, chat, count)
    if "drain" in steps:
        drain_one(course, chat, count)
    if "node" in steps:
        lose_node(course, chat, node, count)


def verified(sandbox: RunningSandbox) -> tuple[bool, str]:
    """Return whether `fairlead verify` ended with code 0, which means no contradiction, and its last lines."""
    token = load_or_create(sandbox.state.secrets).admin
    done = fairlead("verify", "--url", sandbox.url("api"), "--token", token, timeout=600)
    return done.returncode == 0, "; ".join(line.strip() for line in (done.stdout + done.stderr).strip().splitlines()[-6:])


def run_operations(sandbox: RunningSandbox, node: subprocess.Popen[bytes], folder: Path, settings: OperationsSettings, work: Work) -> int:
    """Run both pools under load through all operations, and return 1 if a promise was not kept."""
    count, course = settings.instances, StepVerdict(window=settings.window)
    spec = spec_of(work, settings.cache_tokens, kv_transfer=settings.kv_transfer)
    print(f"{count} prefill and {count} decode instances at {settings.utilisation:.0%}: {work.words()}", flush=True)
    trace = folder / "trace.jsonl"
    with trace.open("w") as out:
        write_trace(work.rows, out)
    chat, newest = (
        LoadedPool(
            sandbox=sandbox,
            name=name,
            manifest=pool_manifest(name, work, roles_of(2 * count), spec),
            rows_file=folder / f"{name}.jsonl",
        )
        for name in ("chat", NEWEST)
    )
    loaded = (chat, newest) if set(ROLES) & set(settings.steps) else (chat,)
    try:
        for pool in loaded:
            pool.create(dict.fromkeys(ROLES, count))
        begin_loads(loaded, trace, work.speed)
        time.sleep(settings.warm_up)
        operate(course, chat, newest, node, count, settings.steps)
        retries = counted(sandbox, "fairlead_router_retries_total", pool="default/chat")
        chat.end_load()
    finally:
        for pool in (chat, newest):
            pool.kill_load()
    time.sleep(5.0)  # the routers' last reports
    verify = verified(sandbox)
    broken = contradictions(f"postgresql://fairlead@/fairlead?host={sandbox.state.socket_directory}")
    return told(course, chat, newest, work, settings, retries, verify, broken)


def told(
    course: StepVerdict,
    chat: LoadedPool,
    newest: LoadedPool,
    work: Work,
    settings: OperationsSettings,
    retries: int,
    verify: tuple[bool, str],
    broken: Sequence[str],
) -> int:
    """Print the whole report, and return 1 if a promise was not kept."""
    costs = costs_of(chat, work, course.operations, settings.window)
    compared = costs_of(newest, work, course.operations, settings.window) if newest.served else []
    scale_ins = [index for index, cost in enumerate(compared) if cost.operation.scaled_in]
    victims = {"cheapest": [costs[index] for index in scale_ins], "newest": [compared[index] for index in scale_ins]}
    kept = promises(chat, costs, course, verify, broken)
    for lines in (
        ["", *(line for pool in (chat, newest) if pool.served for line in load_lines(pool, work, settings.instances, settings.window))],
        ["", *operations_table(costs)],
        ["", *victims_table(victims)],
        ["", *loss_lines(chat, course, retries), *drain_lines(course), ""],
        [f"{'yes' if good else 'NO ':4}{words}" for words, good in kept.items()],
    ):
        print("\n".join(lines), flush=True)
    return 0 if all(kept.values()) else 1
