"""Receivers of traces: one reads OTLP with OpenTelemetry's own messages, the other is a collector that forwards to it.

The collector is Rotel, which is written in Rust and shares no code with OpenTelemetry's Python exporter. So the spans
that it forwards were understood by an independent program. OpenTelemetry's own collector is not in the package
registries of Python, npm or Debian.
"""

import asyncio
import gzip
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from fairlead.reports.decisions import DecisionRecord
from fairlead.tables import PoolKey
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port


@dataclass
class ReceivedSpan:
    """A received span. Ids are hexadecimal digits, times are nanoseconds."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent: str
    state: str
    start: int
    end: int
    is_error: bool
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    resource: dict[str, Any]


@dataclass
class Receiver:
    """An HTTP server that receives spans; `status` is the status of its answers."""

    spans: list[ReceivedSpan] = field(default_factory=list)
    requests: int = 0
    status: int = 200
    port: int = 0
    _server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def decisions(self) -> dict[str, DecisionRecord]:
        """Return the routing decisions that the received spans describe, by id."""
        return {one.id: one for one in map(decision_of, self.named("fairlead.decision"))}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
                body = await reader.readexactly(int(headers["content-length"]))
                self.requests += 1
                if self.status == 200:
                    assert head[0].startswith("POST /v1/traces ")
                    assert headers["content-type"] == "application/x-protobuf"
                    self.spans += _spans(gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body)
                writer.write(b"HTTP/1.1 %d X\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n" % self.status)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Run a receiver on a free port until the block ends."""
    receiver = Receiver()
    await receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop()


def rotel_binary() -> Path:
    """Return the path of Rotel; skips the test if there is no Rotel for this Python and machine."""
    found = find_spec("rotel")
    if found is None or found.origin is None:
        pytest.skip("Rotel is packaged for Python 3.11 on Linux and x86-64 only")
    binary = Path(found.origin).parent / "rotel-agent"
    binary.chmod(0o755)
    if subprocess.run([binary, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"Rotel does not run here: it needs a libpython{sys.version_info.major}.{sys.version_info.minor} that is shared")
    return binary


@asynccontextmanager
async def running_rotel(folder: Path, receiver: Receiver) -> AsyncIterator[str]:
    """Run Rotel until the block ends and yield its URL; it forwards spans to the receiver."""
    http, grpc = free_port(), free_port()
    command: list[str | Path] = [
        rotel_binary(), "start", "--otlp-http-endpoint", f"127.0.0.1:{http}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}",
        "--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", receiver.url, "--pid-file", folder / "rotel.pid",
    ]  # fmt: skip
    with (folder / "rotel.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        await _until_it_listens(http, process, folder / "rotel.log")
        yield f"http://127.0.0.1:{http}"
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


async def _until_it_listens(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                assert process.poll() is None, log.read_text()
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def _spans(body: bytes) -> list[ReceivedSpan]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        _span(span, _attributes(part.resource.attributes))
        for part in request.resource_spans
        for scope in part.scope_spans
        for span in scope.spans
    ]


def _span(span: Any, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=type(span).SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        state=span.trace_state,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        is_error=span.status.code == 2,
        attributes=_attributes(span.attributes),
        events=[(event.name, _attributes(event.attributes)) for event in span.events],
        resource=resource,
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}


def decision_of(span: ReceivedSpan) -> DecisionRecord:
    """Return the decision record that a span describes; each field is read from the attribute with the field's name."""
    document = _document("fairlead.decision", span.attributes)
    document["pool"] = msgspec.to_builtins(PoolKey.parse(document["pool"]))
    document["weighing"] = _document("fairlead.weighing", span.attributes)
    for place, name, within in (
        ("candidates", "fairlead.candidate", document["weighing"]),
        ("attempts", "fairlead.attempt", document),
        ("continuations", "fairlead.continuation", document),
        ("shadows", "fairlead.shadow", document),
    ):
        within[place] = [_document(name, attributes) for event, attributes in span.events if event == name]
    for candidate in document["weighing"]["candidates"]:
        candidate.setdefault("total", None)
    for shadow in document["shadows"]:
        shadow.setdefault("target", None)
    for absent in ("session", "runner_up"):
        document.setdefault(absent, None)
    return msgspec.convert(document, DecisionRecord)


def _document(prefix: str, attributes: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(prefix + "."):
            member, _, key = name.removeprefix(prefix + ".").partition(".")
            if key:
                found.setdefault(member, {})[key] = value
            else:
                found[member] = value
    return found
