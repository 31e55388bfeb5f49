"""Scaling to zero and from zero with real processes.

An idle pool removes its engine; twenty requests at once start one and are served.
"""

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fairlead_testing.builders.sandbox_pools import pool
from fairlead_testing.running.sandbox import POOLS, RunningSandbox, until
from fairlead_testing.waiting import PATIENCE_SECONDS

SCALING = {"mode": "SLO", "zero": {"idleAfter": "1s", "holdFor": "120s"}}


def test_twenty_requests_at_zero_are_all_served_by_the_engine_that_they_start(sandbox: RunningSandbox) -> None:
    sandbox.apply_pool(pool("sleepy", replicas=1, roles=[{"name": "both", "maxReplicas": 2}], scaling=SCALING)).raise_for_status()

    def status() -> dict[str, Any]:
        found: dict[str, Any] = sandbox.kubernetes("GET", f"{POOLS}/sleepy").json().get("status") or {}
        return found

    def at_zero() -> bool:
        ready: dict[str, Any] = next((one for one in status().get("conditions") or [] if one["type"] == "Ready"), {})
        return ready.get("reason") == "ScaledToZero" and not status().get("replicas")

    until(at_zero, "the idle pool at zero")

    def ask(number: int) -> tuple[int, float]:
        streamed = number % 2 == 0
        body = {"model": "default/sleepy", "prompt": f"request {number} " * 50, "max_tokens": 4, "stream": streamed}
        router = sandbox.routers[number % len(sandbox.routers)]
        asked = urllib.request.Request(
            f"{router}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
            assert answer.read()
            return answer.status, float(answer.headers["x-fairlead-queued-ms"])

    with ThreadPoolExecutor(20) as clients:
        answers = list(clients.map(ask, range(20)))
    assert {code for code, _ in answers} == {200}
    assert max(waited for _, waited in answers) > 0, "the first of them was held while the engine started"

    def causes() -> set[str]:
        return {row["cause"] for row in sandbox.everything("/v1/scaling-decisions", pool="default/sleepy")}

    until(lambda: {"Idle", "Held"} <= causes(), "both steps are on record")
    sandbox.delete_pool("sleepy")
