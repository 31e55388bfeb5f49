"""A control API that knows only what operators ask: /internal/v1 pool states, events, deletions. Run by tests in a thread, on loopback."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from fairlead.pool_states import InstanceObservation, PoolEvent, PoolObservations, PoolState

TOKEN = "operator-test-token"


@dataclass(slots=True)
class FakeControlApi:
    """Remembers everything it was told. Routers acknowledge at once unless `acknowledges` is off; `in_flight` and `sessions` are as set."""

    url: str = ""
    up: bool = True
    acknowledges: bool = True
    live_routers: int = 2
    in_flight: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    states: dict[str, PoolState] = field(default_factory=dict)
    histories: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """Per instance of any pool, each change of its state."""
    events: list[PoolEvent] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def state(self, pool: str) -> PoolState | None:
        """The pool's newest state."""
        with self.lock:
            return self.states.get(pool)

    def reasons(self) -> list[str]:
        """Reasons of all events so far, in order."""
        with self.lock:
            return [event.reason for event in self.events]

    def transitions(self, instance: str) -> list[str]:
        """States an instance was reported in, in order, without repetitions."""
        with self.lock:
            return [entry["state"] for entry in self.histories.get(instance, [])]

    def take_state(self, pool: str, state: PoolState) -> PoolObservations:
        with self.lock:
            known = self.states.get(pool)
            if known is not None and known.uid == state.uid:
                assert int(state.resource_version) >= int(known.resource_version), "resourceVersion went back"
                assert state.generation >= known.generation, "generation went back"
            self.states[pool] = state
            for instance in state.instances:
                history = self.histories.setdefault(instance.id, [])
                if not history or history[-1]["state"] != instance.state:
                    history.append({"state": instance.state.value, "reason": instance.reason})
            return PoolObservations(
                table_version=state.generation,
                table_acknowledged=self.acknowledges,
                live_routers=self.live_routers,
                ttft_attainment=None,
                requests_per_second=0.0,
                instances=tuple(
                    InstanceObservation(
                        id=instance.id,
                        in_flight=self.in_flight.get(instance.id, 0),
                        bound_sessions=self.sessions.get(instance.id, 0),
                        cache_tokens=0,
                        acknowledged=self.acknowledges,
                    )
                    for instance in state.instances
                ),
            )


class _Events(msgspec.Struct):
    events: list[PoolEvent]


def _handler(api: FakeControlApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is inherited
            """Say nothing."""

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not api.up:
                self.close_connection = True
                return
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._answer(401, b"{}")
                return
            _, _, _, _, namespace, name, *rest = self.path.split("/")
            pool = f"{namespace}/{name}"
            if self.command == "PUT" and rest == ["state"]:
                observations = api.take_state(pool, msgspec.json.decode(body, type=PoolState))
                self._answer(200, msgspec.json.encode(observations))
            elif self.command == "POST" and rest == ["events"]:
                with api.lock:
                    api.events.extend(msgspec.json.decode(body, type=_Events).events)
                self._answer(202, b"{}")
            elif self.command == "DELETE" and not rest:
                with api.lock:
                    api.deleted.append(pool)
                    api.states.pop(pool, None)
                self._answer(204, b"")
            else:
                self._answer(404, b"{}")

        do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the names are inherited

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@contextmanager
def running_fake_control_api() -> Iterator[FakeControlApi]:
    """A running one; its `url` is set."""
    api = FakeControlApi()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
