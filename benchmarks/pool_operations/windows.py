"""A schedule's window that opens in a minute and lasts one minute. It scales a pool and changes its SLO, and both
changes end with the window.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.pool_operations.loaded_pools import wait_until

from fairlead_testing.running.sandbox import RunningSandbox

NAME = "timed"
MINUTE_SECONDS = 60.0
SLACK_SECONDS = 45.0
"""Seconds that instances may take to start, warm and drain."""
INSIDE, OUTSIDE = (3, 1.0), (1, 5.0)
"""The number of serving instances and the TTFT in seconds of the SLO: inside the window, and outside of it."""


def run_window(sandbox: RunningSandbox) -> int:
    """Create the pool and follow its window from before it opens until after it has closed.

    Return 1 if the pool differed from the schedule.
    """
    opens = (datetime.now(UTC) + timedelta(seconds=MINUTE_SECONDS)).replace(microsecond=0)
    start = opens.strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = sandbox.apply_pool(manifest(start))
    if answer.status_code not in {200, 201}:
        raise SystemExit(f"the pool was refused: {answer.text[:500]}")
    wait_until(lambda: found(sandbox) == OUTSIDE, "one instance serves, with the pool's own SLO", MINUTE_SECONDS)
    told(opens, "one instance serves, TTFT 5 s")
    early = datetime.now(UTC) < opens
    closes = opens + timedelta(seconds=MINUTE_SECONDS)
    follow(opens, lambda: found(sandbox)[1] == INSIDE[1], "TTFT 1 s", MINUTE_SECONDS + SLACK_SECONDS)
    follow(opens, lambda: found(sandbox) == INSIDE, "three instances serve", SLACK_SECONDS)
    in_time = datetime.now(UTC) < closes
    follow(opens, lambda: found(sandbox)[1] == OUTSIDE[1], "TTFT 5 s again", MINUTE_SECONDS + SLACK_SECONDS)
    follow(opens, lambda: found(sandbox) == OUTSIDE, "one instance serves again", SLACK_SECONDS)
    runs = sandbox.everything("/v1/schedule-runs", pool=f"default/{NAME}")
    lines = [f"{run['schedule']} of {run['start']}: {run['outcome']} ({run['reason']})" for run in runs]
    events = {event["reason"] for event in sandbox.everything(f"/v1/pools/default/{NAME}/events")}
    kept = {
        "the window opened and closed by itself, and was in force in between": early and in_time,
        f"recorded runs: {'; '.join(lines)}": [run["outcome"] for run in runs] == ["closed"],
        "events WindowOpened, WindowClosed, ScalingUp and ScalingDown": {"WindowOpened", "WindowClosed", "ScalingUp", "ScalingDown"}
        <= events,
        "the declared number is untouched": sandbox.pool(NAME)["spec"]["replicas"] == 1,
    }
    for words, good in kept.items():
        print(f"{'yes' if good else 'NO ':4}{words}", flush=True)
    return 0 if all(kept.values()) else 1


def manifest(start: str) -> dict[str, Any]:
    """Return the pool's manifest. Its cron expression names a day far away; the window opens at the extra start
    `start`.
    """
    window = {
        "name": "rush",
        "cron": "0 0 29 2 *",
        "duration": "1m",
        "runAt": [start],
        "roles": [{"name": "both", "replicas": INSIDE[0]}],
        "slo": {"ttft": f"{INSIDE[1]:g}s"},
    }
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "model": f"{NAME}/model",
            "replicas": OUTSIDE[0],
            "roles": [{"name": "both", "minReplicas": 1, "maxReplicas": 4}],
            "engine": {"type": "simulated"},
            "slo": {"ttft": f"{OUTSIDE[1]:g}s"},
            "scaling": {"schedules": [window]},
        },
    }


def found(sandbox: RunningSandbox) -> tuple[int, float]:
    """Return the number of serving instances, and the TTFT in seconds of the SLO that the control API reports; 0 if it
    reports no SLO.
    """
    serving = int(sandbox.pool(NAME).get("status", {}).get("serving", 0))
    answer = sandbox.request("GET", f"/v1/pools/default/{NAME}/slo")
    items = answer.json()["items"] if answer.status_code == 200 else []
    return serving, float(items[0]["ttft_seconds"]) if items else 0.0


def follow(opens: datetime, seen: Callable[[], bool], words: str, seconds: float) -> None:
    """Wait until `seen` returns true, and print the time at which it did."""
    wait_until(seen, words, seconds)
    told(opens, words)


def told(opens: datetime, words: str) -> None:
    """Print the text with the seconds since the window's start."""
    print(f"{time.time() - opens.timestamp():+6.0f} s  {words}", flush=True)
