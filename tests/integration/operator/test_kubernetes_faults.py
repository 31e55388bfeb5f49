"""A Kubernetes API that refuses, cuts, delays and forgets: the operator neither loses nor doubles an instance.

It also reports the fault.
"""

import json
import time
from collections.abc import Callable

import pytest

from fairlead_testing.running.operator_process import Stage, eventually
from fairlead_testing.running.recording_proxy import NO_FAULT, Asked, Fault, RecordingProxy


def watch_error(code: int, reason: str, message: str) -> bytes:
    """Return an error within a watch's stream, as an API server writes it."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}
    return json.dumps({"type": "ERROR", "object": status}, separators=(",", ":")).encode() + b"\n"


EXPIRED = watch_error(410, "Expired", "too old resource version: 1 (2)")
IN_STREAMS = {
    "watches that end with 500": watch_error(500, "InternalError", "etcdserver: no leader"),
    "watches that end with 504": watch_error(504, "Timeout", "Too large resource version: 9, current: 1"),
    "watches that end with 429": watch_error(429, "TooManyRequests", "too many requests"),
    "watches that end with 403": watch_error(403, "Forbidden", "unknown"),
    "watches without a code": b'{"type":"ERROR","object":{"kind":"Status"}}\n',
    "watches with half a line": b'{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"Pod","meta',
    "watches with a list": b'[{"type":"ADDED"}]\n',
    "watches of nobody": b'{"type":"ADDED","object":{"metadata":null}}\n',
    "watches that say nothing": b"",
}
"""Lines of a stream in place of events. Each except the last one once ended the operator."""
MOST_AT_ONCE, MOST_A_SECOND = 200, 25
"""The most requests of an operator with one pool, whatever the API does."""


def _own(asked: Asked) -> bool:
    """Return whether a request is not for the Lease, without which an operator stops acting (other tests cover
    that).
    """
    return "/leases" not in asked.path


class Storm:
    """A fault for every second of these requests, up to a number."""

    def __init__(self, fault: Fault, which: Callable[[Asked], bool] = _own, most: int = 8) -> None:
        self._fault, self._which, self._left, self._spares = fault, which, most, False

    def __call__(self, asked: Asked) -> Fault:
        if not self._left or not _own(asked) or not self._which(asked):
            return NO_FAULT
        self._spares = not self._spares
        self._left -= not self._spares
        return NO_FAULT if self._spares else self._fault


def _writes(asked: Asked) -> bool:
    return asked.method != "GET"


def _watches(asked: Asked) -> bool:
    return asked.watches


def _reads(asked: Asked) -> bool:
    return asked.method == "GET" and not asked.watches


STORMS: dict[str, tuple[Fault, Callable[[Asked], bool]]] = {
    "429": (Fault(status=429, reason="TooManyRequests", retry_after=1), _own),
    "500": (Fault(status=500, reason="InternalError"), _own),
    "conflicts": (Fault(status=409, reason="Conflict"), _writes),
    "watches that are gone": (Fault(status=410, reason="Expired"), _watches),
    "watches that end as gone": (Fault(instead=EXPIRED), _watches),
    "watches that are cut": (Fault(cut_after=700), _watches),
    "reads that are cut": (Fault(cut_after=200), _reads),
    "writes whose answer is lost": (Fault(cut_after=0), _writes),
    "slow streams": (Fault(slowly=True), _own),
    "no documents": (Fault(instead=b'{"kind":'), lambda asked: not asked.watches),
    "documents of nothing": (Fault(instead=b"{}"), _reads),
    **{name: (Fault(instead=content), _watches) for name, content in IN_STREAMS.items()},
}


def _uids(stage: Stage, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in stage.pods(name)}


@pytest.mark.nightly
def test_in_storm_after_storm_a_pool_grows_and_shrinks_without_losing_or_doubling_an_instance(
    proxied: tuple[Stage, RecordingProxy],
) -> None:
    stage, proxy = proxied
    proxy.start()
    stage.operator.start()
    stage.apply("stormy", replicas=2)
    stage.settle("stormy", 2)
    for number, (name, (fault, which)) in enumerate(STORMS.items(), start=1):
        began, before, kept, faults = time.monotonic(), proxy.requests, _uids(stage, "stormy"), len(proxy.answered)
        proxy.fault = Storm(fault, which)
        stage.edit("stormy", {"replicas": 4})
        stage.settle("stormy", 4)
        four = _uids(stage, "stormy")
        assert kept < four, name
        stage.edit("stormy", {"replicas": 2})
        stage.settle("stormy", 2)
        assert _uids(stage, "stormy") < four, f"{name}: two went, and no other came"
        assert proxy.created["/api/v1/namespaces/default/pods"] == 2 + 2 * number, f"{name}: no pod was made twice"
        assert proxy.requests - before < MOST_AT_ONCE + MOST_A_SECOND * (time.monotonic() - began), name
        assert len(proxy.answered) > faults or which is _watches, f"{name} was a storm"
    _ran_on(stage)


@pytest.mark.parametrize(
    "storm",
    ["watches that are gone", "watches that end with 500", "watches with half a line", "reads that are cut", "documents of nothing"],
)
def test_an_operator_that_starts_in_a_storm_makes_its_pools_instances(proxied: tuple[Stage, RecordingProxy], storm: str) -> None:
    stage, proxy = proxied
    proxy.fault = Storm(*STORMS[storm])
    stage.apply("begins", replicas=1)
    proxy.start()
    stage.operator.start()
    stage.settle("begins", 1)
    assert proxy.answered
    assert proxy.created["/api/v1/namespaces/default/pods"] == 1
    _ran_on(stage)


def _ran_on(stage: Stage) -> None:
    """Check that the operator is still the first process, and that no log line has a traceback."""
    assert stage.operator.process is not None and stage.operator.process.poll() is None
    assert "Traceback" not in stage.operator.log.read_text(encoding="utf-8")


def test_a_server_that_asks_to_wait_is_not_asked_before_and_the_condition_says_why(proxied: tuple[Stage, RecordingProxy]) -> None:
    stage, proxy = proxied
    full = Fault(status=429, reason="TooManyRequests", retry_after=60)
    proxy.fault = lambda asked: full if asked.method == "POST" and asked.path.endswith("/pods") else NO_FAULT
    proxy.start()
    stage.operator.start()
    stage.apply("waits", replicas=1)
    eventually(lambda: "injected" in stage.condition("waits", "Degraded").get("message", ""), "the condition has the server's words")
    assert "tried again at" in stage.condition("waits", "Degraded")["message"]
    time.sleep(5)  # the operator looks every two seconds, and without the wish would have tried three times
    assert len(proxy.answered) == 1
    eventually(lambda: "ActionFailed" in stage.kubernetes_events("waits"), "an event says it")
    _ran_on(stage)
