"""KEDA's external scaler, called by a real gRPC client. Messages have the field numbers of KEDA's own file."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from fairlead_api.autoscaler_settings import AutoscalerSettings
from fairlead_api.autoscalers.figures import OLDEST_SECONDS, LatestFigures
from fairlead_api.autoscalers.scaler_port import serving_scaler
from fairlead_api.infra.autoscaler_ports import bound
from fairlead_api.pools.scaling_figures import ScalingFigures
from fairlead_process.certificates import Certificate
from fairlead_process.doors import Door
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.kubernetes_api.serving.certificates import ensure_certificates

WANTED = {
    ("prod/chat", "both"): 7,
    ("prod/split", "prefill"): 2,
    ("prod/split", "decode"): 5,
    ("prod/idle", "both"): 0,
    ("dev/other", "both"): 9,
}
HEADROOM = {"prod/chat": -0.052, "prod/split": 0.0125}


def field_bytes(number: int, text: str | bytes) -> bytes:
    """Return a length-delimited field as protobuf writes it."""
    payload = text.encode() if isinstance(text, str) else text
    return bytes([number << 3 | 2, len(payload)]) + payload


def reference(namespace: str = "prod", **metadata: str) -> bytes:
    """Return a ScaledObjectRef: name = 1, namespace = 2, scalerMetadata = 3 (a map)."""
    entries = b"".join(field_bytes(3, field_bytes(1, key) + field_bytes(2, value)) for key, value in metadata.items())
    return field_bytes(1, "scaled") + field_bytes(2, namespace) + entries


def values(name: str, **metadata: str) -> bytes:
    """Return a GetMetricsRequest: scaledObjectRef = 1, metricName = 2."""
    return field_bytes(1, reference(**metadata)) + field_bytes(2, name)


@dataclass(slots=True)
class Scaler:
    """A scaler's port; `now` moves only when a test moves it."""

    now: float = 0.0
    figures: LatestFigures = field(init=False)
    channel: Any = None

    def __post_init__(self) -> None:
        self.figures = LatestFigures(lambda: self.now)

    def tell(self, wanted: dict[tuple[str, str], int] | None = None) -> None:
        self.figures.take(
            ScalingFigures(wanted=WANTED if wanted is None else wanted, headroom=HEADROOM), datetime(2026, 11, 30, tzinfo=UTC)
        )

    async def call(self, method: str, request: bytes) -> bytes:
        answered: bytes = await self.channel.unary_unary(f"/externalscaler.ExternalScaler/{method}")(request, timeout=PATIENCE_SECONDS)
        return answered

    async def refusal(self, method: str, request: bytes) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.call(method, request)
        return refused.value.code(), refused.value.details() or ""


@pytest.fixture
async def scaler() -> AsyncIterator[Scaler]:
    scaler, listener = Scaler(), socket.create_server(("127.0.0.1", 0))
    scaler.tell()
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    async with serving_scaler(scaler.figures, listener, Door(8), None), grpc.aio.insecure_channel(address) as scaler.channel:
        yield scaler


async def test_the_value_is_the_wanted_number_and_the_target_one_an_instance(scaler: Scaler) -> None:
    spec = await scaler.call("GetMetricSpec", reference(pool="chat"))
    one = field_bytes(1, "wanted-instances") + b"\x10\x01" + b"\x19" + bytes(6) + b"\xf0\x3f"
    assert spec == field_bytes(1, one), "targetSize 1 and targetSizeFloat 1.0"
    found = await scaler.call("GetMetrics", values("wanted-instances", pool="chat"))
    assert found == field_bytes(1, field_bytes(1, "wanted-instances") + b"\x10\x07" + b"\x19" + bytes(6) + b"\x1c\x40")


async def test_a_headroom_below_zero_is_in_whole_points_as_keda_takes_no_negative_float(scaler: Scaler) -> None:
    found = await scaler.call("GetMetrics", values("slo-headroom", pool="chat", metric="slo-headroom"))
    minus_five = b"\x10" + b"\xfb" + b"\xff" * 8 + b"\x01"
    assert found == field_bytes(1, field_bytes(1, "slo-headroom") + minus_five)
    above = await scaler.call("GetMetrics", values("slo-headroom", pool="split", metric="slo-headroom"))
    assert above == field_bytes(1, field_bytes(1, "slo-headroom") + b"\x10\x01" + b"\x19" + bytes(6) + b"\xf4\x3f"), "1.25 points"


@pytest.mark.parametrize(("pool", "said"), [("chat", b"\x08\x01"), ("idle", b"")])
async def test_a_pool_is_active_while_an_instance_is_wanted(scaler: Scaler, pool: str, said: bytes) -> None:
    assert await scaler.call("IsActive", reference(pool=pool)) == said


async def test_a_role_is_named_where_there_are_several(scaler: Scaler) -> None:
    assert b"\x10\x05" in await scaler.call("GetMetrics", values("wanted-instances", pool="split", role="decode"))
    code, said = await scaler.refusal("GetMetrics", values("wanted-instances", pool="split"))
    assert (code, said) == (grpc.StatusCode.INVALID_ARGUMENT, "role: name one of decode, prefill: the pool 'split' has several")


@pytest.mark.parametrize(
    ("metadata", "code", "said"),
    [
        ({}, grpc.StatusCode.INVALID_ARGUMENT, "pool: write the name of a pool in the ScaledObject's namespace"),
        ({"pool": "dev/other"}, grpc.StatusCode.INVALID_ARGUMENT, "pool: write the name of a pool in the ScaledObject's namespace"),
        ({"pool": "other"}, grpc.StatusCode.NOT_FOUND, "there is no pool 'other' in the namespace 'prod'"),
        ({"pool": "chat", "rol": "both"}, grpc.StatusCode.INVALID_ARGUMENT, "rol is not known in a trigger's metadata"),
        ({"pool": "chat", "role": "decode"}, grpc.StatusCode.NOT_FOUND, "role: the pool 'chat' has no role 'decode'; it has both"),
        ({"pool": "chat", "metric": "load"}, grpc.StatusCode.INVALID_ARGUMENT, "metric: 'load' is none of wanted-instances, slo-headroom"),
    ],
)
async def test_a_trigger_that_cannot_be_answered_is_told_why(
    scaler: Scaler, metadata: dict[str, str], code: grpc.StatusCode, said: str
) -> None:
    found, words = await scaler.refusal("GetMetricSpec", reference(**metadata))
    assert found is code
    assert words.startswith(said)


async def test_what_keda_itself_reads_from_a_trigger_is_no_mistake(scaler: Scaler) -> None:
    known = {"scalerAddress": "fairlead-api:9100", "enableTLS": "true", "unsafeSsl": "false"}
    assert await scaler.call("IsActive", reference(pool="chat", **known)) == b"\x08\x01"


async def test_the_example_is_answered(scaler: Scaler) -> None:
    example = yaml.safe_load((Path(__file__).parents[4] / "examples/autoscalers/scaled-object.yaml").read_text(encoding="utf-8"))
    (trigger,) = example["spec"]["triggers"]
    assert trigger["type"] == "external"
    assert await scaler.call("IsActive", reference(**trigger["metadata"])) == b"\x08\x01"


async def test_old_figures_are_no_figures(scaler: Scaler) -> None:
    scaler.now += OLDEST_SECONDS + 1
    for method in ("IsActive", "GetMetricSpec"):
        assert (await scaler.refusal(method, reference(pool="chat")))[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_watch_hears_whether_it_is_active_and_each_change(scaler: Scaler, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = scaler.channel.unary_stream("/externalscaler.ExternalScaler/StreamIsActive")(reference(pool="chat"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await watch.read() == b"\x08\x01"
        scaler.tell({("prod/chat", "both"): 3})  # no other word
        scaler.tell({("prod/chat", "both"): 0})
        assert await watch.read() == b""
        scaler.tell({})
        with pytest.raises(grpc.aio.AioRpcError, match="no pool 'chat'"):
            await watch.read()


async def test_a_stream_of_specs_is_not_served_as_keda_allows(scaler: Scaler) -> None:
    assert (await scaler.refusal("StreamMetricSpec", reference(pool="chat")))[0] is grpc.StatusCode.UNIMPLEMENTED


async def test_a_renewed_certificate_is_shown_by_a_scaler_without_external_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_process.certificates.LOOK_SECONDS", 0.0)
    first = ensure_certificates(tmp_path, "127.0.0.1")
    ports = bound(AutoscalerSettings(scaler_port=0, cert_file=first.certificate, key_file=first.key), "127.0.0.1", {})
    assert ports.scaler is not None
    address = ports.scaler.getsockname()
    async with serving_scaler(LatestFigures(lambda: 0.0), ports.scaler, Door(8), ports.scaler_certificate):
        before = await asyncio.to_thread(ssl.get_server_certificate, address)
        for path in (first.certificate, first.key):
            path.unlink()
        ensure_certificates(tmp_path, "127.0.0.1")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await asyncio.to_thread(ssl.get_server_certificate, address) == before:
                await asyncio.sleep(0.02)


async def test_a_client_that_ends_no_connection_does_not_fail_the_end_of_a_port_with_tls(tmp_path: Path) -> None:
    """Its connection was closed because of its bytes, and is closed again with the port."""
    made = ensure_certificates(tmp_path, "127.0.0.1")
    ports = bound(AutoscalerSettings(scaler_port=0, cert_file=made.certificate, key_file=made.key), "127.0.0.1", {})
    assert ports.scaler is not None
    address, context = ports.scaler.getsockname(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def send_no_preface() -> ssl.SSLSocket:
        client = context.wrap_socket(socket.create_connection(address, timeout=PATIENCE_SECONDS))
        client.sendall(b"GET / HTTP/1.1\r\n\r\n" * 4)
        while client.recv(4096):  # the farewell, and that no more comes
            pass
        return client

    async with serving_scaler(LatestFigures(lambda: 0.0), ports.scaler, Door(8), ports.scaler_certificate):
        client = await asyncio.to_thread(send_no_preface)
    client.close()


def test_each_port_offers_the_protocol_that_it_speaks_and_no_other(tmp_path: Path) -> None:
    made = ensure_certificates(tmp_path, "127.0.0.1")
    ports = bound(AutoscalerSettings(cert_file=made.certificate, key_file=made.key), "127.0.0.1", {})
    assert [agreed(one) for one in (ports.scaler_certificate, ports.metrics_certificate)] == ["h2", "http/1.1"]


def agreed(certificate: Certificate | None) -> str | None:
    """Return the protocol that a client of both protocols negotiates with a port of this certificate."""
    assert certificate is not None
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    client, server = context.wrap_bio(back, there), certificate.context().wrap_bio(there, back, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return client.selected_alpn_protocol()


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_api.autoscalers.scaler_port.LOOK_SECONDS", 0.02)
