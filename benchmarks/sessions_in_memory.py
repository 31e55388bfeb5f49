"""Measures the cost of a router's memory of sessions. Also measures whose sessions the router forgets when a client
invents too many.

    python -m benchmarks.sessions_in_memory [--sessions 1000000] [--limit 200000]

Prints the bytes of each session, measured without a limit and with all sessions in memory. Then it prints the CPU
microseconds of a session's first request, of a further request, and of a request beyond the limit. At last it prints
how many of 1,000 sessions of another key are still known after a flood of invented sessions.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.command_line import count

from fairlead.reports.bindings import BindingReason
from fairlead.routing.knowledge.bindings import SessionBindings
from fairlead.tables import PoolKey

POOL = PoolKey(namespace="default", name="bench")
OTHERS = 1_000
PAGE_BYTES = 4096


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def bind(bindings: SessionBindings, name: str, sessions: int, owner: str) -> float:
    """Return the CPU microseconds of the first request of a session, mean over `sessions` sessions."""
    began = time.process_time()
    for number in range(sessions):
        bindings.bind(f"{name}-{number}", "a", BindingReason.COLD, 1.0, 10, f"{name}-change-{number:020d}", owner)
    return (time.process_time() - began) / sessions * 1e6


def touch(bindings: SessionBindings, name: str, sessions: int, owner: str) -> float:
    """Return the CPU microseconds of a further request of a session, mean over `sessions` sessions."""
    began = time.process_time()
    for number in range(sessions):
        bindings.touch(f"{name}-{number}", 2.0, owner)
    return (time.process_time() - began) / sessions * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sessions",
        type=count,
        default=1_000_000,
        help="number of sessions that are remembered at once, and number of sessions in the flood",
    )
    parser.add_argument("--limit", type=count, default=200_000, help="maximum number of sessions that a router remembers for a pool")
    options = parser.parse_args()
    before = resident_bytes()
    unbounded = SessionBindings(POOL, 1e9, {}, options.sessions)
    first = bind(unbounded, "session", options.sessions, "key")
    each = (resident_bytes() - before) / options.sessions
    further = touch(unbounded, "session", options.sessions, "key")
    print(f"{options.sessions:,} sessions: {each:.0f} bytes each, first request {first:.1f} us, further request {further:.1f} us")
    del unbounded
    bounded = SessionBindings(POOL, 1e9, {}, options.limit)
    bind(bounded, "other", OTHERS, "other")
    flood = bind(bounded, "garbage", options.sessions, "flooding")
    known = sum(bounded.get(f"other-{number}") is not None for number in range(OTHERS))
    print(f"flood beyond {options.limit:,}: {flood:.1f} us each; {known} of {OTHERS:,} sessions of another key are known after it")


if __name__ == "__main__":
    main()
