"""A canary of real processes: the judge stops a revision whose engines decode slowly, and its sessions return."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import httpx
import pytest

from fairlead_testing.builders.sandbox_pools import pool
from fairlead_testing.running.sandbox import RunningSandbox, until
from fairlead_testing.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.nightly  # real minutes: a canary starts, is judged, is drained and replaced

NAME = "canary"
QUICK, SLOW = "2ms", "100ms"
"""The duration of a decode step of each revision, different enough for any machine."""
AT_ONCE = 4
TURNS = 4


def document(step: str) -> dict[str, Any]:
    rollout = {"canary": {"steps": [{"share": 50, "hold": "1s"}], "warmCaches": "0s"}}
    engine = {"type": "simulated", "simulated": {"decodeStep": step, "startup": "500ms"}}
    return pool(NAME, policy="fairlead", replicas=2, engine=engine, rollout=rollout, slo={"ttft": "60s", "tpot": "10s"})


def turn(url: str, session: str) -> str:
    """Send a turn of the session; return the instance that answered."""
    body = {"model": f"model/{NAME}", "messages": [{"role": "user", "content": "hello " * 50}], "max_tokens": 6, "stream": True}
    headers = {"x-session-id": session}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-fairlead-instance"]


@contextmanager
def sessions(url: str) -> Iterator[dict[str, str]]:
    """Run sessions of a few turns, some at once, until the end; return the instance of each session's last turn."""
    homes: dict[str, str] = {}
    failed: list[Exception] = []
    numbers, ended = count(), threading.Event()

    def talk() -> None:
        try:
            while not ended.is_set():
                session = f"s{next(numbers)}"
                for _ in range(TURNS):
                    homes[session] = turn(url, session)
        except Exception as error:  # noqa: BLE001  # the test fails with it below
            failed.append(error)

    threads = [threading.Thread(target=talk) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    try:
        yield homes
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failed, failed


def test_a_slower_revision_is_stopped_and_its_sessions_go_back(sandbox: RunningSandbox) -> None:
    sandbox.apply_pool(document(QUICK)).raise_for_status()
    sandbox.until_ready(NAME, 2)
    url = sandbox.routers[0]

    def instances() -> set[str]:
        return {one["id"] for one in sandbox.everything(f"/v1/pools/default/{NAME}/instances") if one["state"] == "Serving"}

    def said() -> str | None:
        steps = sandbox.ask(f"/v1/pools/default/{NAME}/canary")["steps"]
        looks = steps[0]["looks"] if steps else []
        return looks[0]["reason"] if looks and looks[0]["verdict"] == "back" else None

    def progressing() -> str:
        conditions = sandbox.pool(NAME).get("status", {}).get("conditions", [])
        return next((one["reason"] for one in conditions if one["type"] == "Progressing"), "")

    stable = instances()
    with sessions(url) as homes:
        sandbox.apply_pool(document(SLOW)).raise_for_status()
        until(lambda: set(homes.copy().values()) - stable, "sessions go to the new revision", 2 * PATIENCE_SECONDS)
        assert "time per token" in until(said, "the judge sends it back", 4 * PATIENCE_SECONDS)
        until(lambda: progressing() == "CanaryRejected", "the rollout stops")
        moved = next(session for session, home in homes.copy().items() if home not in stable)
        (canary,) = set(homes.copy().values()) - stable
        until(lambda: canary not in instances(), "the canary leaves", 2 * PATIENCE_SECONDS)
    assert turn(url, moved) in instances()
    sandbox.until_ready(NAME, 2)
    assert progressing() == "CanaryRejected"
    reasons = {event["reason"] for event in sandbox.everything(f"/v1/pools/default/{NAME}/events")}
    assert {"CanaryStep", "CanaryRejected"} <= reasons
    sandbox.delete_pool(NAME)
