"""Operates pools of prefill and decode instances under load, and prints the cost for their users.

    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.pool_operations [operations] [--trace TRACE] [--instances 4]
        [--utilisation 0.7] [--rate 3.3] [--window 150] [--warm-up 300] [--no-kv-transfer]
        [--steps prefill,decode,flip,maintenance,rollout,drain,node]
    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.pool_operations ratio [--phase 600]
    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.pool_operations window
    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.pool_operations effects [--trace TRACE] [--instances 4]
        [--utilisation 0.7] [--rate 3.3] [--warm-up 300]
    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.pool_operations designs [--trace TRACE] [--warm-up 150]

Each mode except `designs` and `rollouts` runs a whole sandbox, and ends it.

operations   A trace in Mooncake's format, or generated conversations, are sent to the pool `chat` at `--rate`. Its
             simulated engines get the speed at which this load is `--utilisation` of what the instances of each role
             can do. Meanwhile these operations are made: each role is scaled out to twice its instances and back, an
             instance flips its role and another flips back, one of two nodes is cordoned and emptied by evictions, a
             new setting of the engine is rolled out, an instance is drained in the middle of an answer of ten minutes,
             and the node is lost with all its instances. Engines transfer their KV blocks, so that sessions take their
             caches along; with --no-kv-transfer all must be computed again. While roles are scaled, the same requests
             go to a second pool, `newest`, which is scaled at the same moments. There the newest instances are cordoned
             right before a scale-in and so are removed first, as they are without knowledge of caches. After each
             operation the load continues for `--window` seconds. Hit rates are compared in windows of this length.
ratio        A load that shifts from prefill-heavy to decode-heavy and back goes to four pools of six instances at once:
             three with fixed ratios, and one with `ratio: {mode: Auto}`.
window       A schedule's window opens in a minute and lasts a minute. It scales a pool, changes its SLO, and undoes
             both.
effects      The same load goes to a pool for each of four plans: a scale-in, a drain, a policy and early rejection.
             After the warm-up all are planned. Each is applied when its simulation has computed its expected effect.
             Then the real effect is measured for as long as in the simulation.
designs      The share of a rollout's hits that designs of a hand-over keep, computed from the same load without
             running anything.
rollouts     The share of hits that a rollout of the prefill instances keeps, in virtual time: with the routers'
             scheduler and simulated engines, without hand-overs and with sessions that fetch their blocks.

Progress and the tables go to stdout, the tables in Markdown. Ends with code 1 if a promise was not kept. No request may
fail unless the lost node was answering it. The hit rate after a scale-in must be at least nine tenths of the one
before; both are taken relative to an endless cache with the same requests, because traces differ from window to window.
The record must not contradict itself. Auto must serve at most a point fewer in time than the best fixed ratio, and move
at most one instance per cooldown. The effect of a plan must be within a quarter of the expected effect, or have been
reported as unknown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.command_line import a_file, above_zero, count, end_everything_when_ended, names_of
from benchmarks.pool_operations.designs import run_designs
from benchmarks.pool_operations.effects import EffectsSettings, run_effects
from benchmarks.pool_operations.nodes import second_node
from benchmarks.pool_operations.operating import STEPS, OperationsSettings, run_operations
from benchmarks.pool_operations.rollouts import run_rollouts
from benchmarks.pool_operations.shifting import run_shift
from benchmarks.pool_operations.windows import run_window

from fairlead_simulator.errors import SimulatorError
from fairlead_testing.running.sandbox import running_sandbox

MODES = ("operations", "ratio", "window", "effects", "designs", "rollouts")


def main() -> int:
    """Run one mode, and return 1 if a promise was not kept."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pool_operations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", nargs="?", choices=MODES, default=MODES[0])
    parser.add_argument("--trace", type=a_file, help="trace in Mooncake's format; without this option, conversations are generated")
    parser.add_argument("--instances", type=count, default=4, help="of each role")
    parser.add_argument("--utilisation", type=above_zero, default=0.7, help="share of the instances' capacity that the load needs")
    parser.add_argument("--rate", type=above_zero, default=3.3, help="requests per second, to each pool")
    parser.add_argument("--window", type=above_zero, default=150.0, help="seconds of load after each operation")
    parser.add_argument("--warm-up", type=above_zero, default=300.0, help="seconds of load before the first operation")
    parser.add_argument(
        "--steps", type=names_of(STEPS), default=list(STEPS), help=f"steps of the mode operations, separated by commas: {', '.join(STEPS)}"
    )
    parser.add_argument(
        "--kv-transfer",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether engines transfer their KV blocks in the mode operations (spec.engine.kvTransfer)",
    )
    parser.add_argument("--cache-tokens", type=count, default=6_000_000, help="number of tokens in an instance's KV cache")
    parser.add_argument("--phase", type=above_zero, default=600.0, help="seconds of each phase of the mode ratio")
    parser.add_argument("--seed", type=int, default=0, help="of generated phases")
    options = parser.parse_args()
    end_everything_when_ended()
    with tempfile.TemporaryDirectory(prefix="fairlead-operations-") as scratch:
        folder = Path(scratch)
        if options.mode == "ratio":
            with running_sandbox(folder / "state", "--routers", "2") as sandbox:
                return run_shift(sandbox, folder, options.phase, options.seed)
        if options.mode == "window":
            with running_sandbox(folder / "state") as sandbox:
                return run_window(sandbox)
        shared = {name: getattr(options, name) for name in ("trace", "instances", "utilisation", "rate", "warm_up", "cache_tokens")}
        settings: OperationsSettings | EffectsSettings = (
            EffectsSettings(**shared)
            if options.mode == "effects"
            else OperationsSettings(**shared, window=options.window, kv_transfer=options.kv_transfer, steps=tuple(options.steps))
        )
        try:
            work = settings.work()
        except (SimulatorError, ValueError) as error:
            parser.error(str(error))
        if options.mode == "designs":
            return run_designs(work, options.instances, options.warm_up)
        if options.mode == "rollouts":
            return run_rollouts(work, options.instances, options.warm_up, options.cache_tokens)
        with running_sandbox(folder / "state", "--routers", "2") as sandbox:
            if isinstance(settings, EffectsSettings):
                return run_effects(sandbox, folder, settings, work)
            with second_node(sandbox, folder) as node:
                return run_operations(sandbox, node, folder, settings, work)


if __name__ == "__main__":
    sys.exit(main())
