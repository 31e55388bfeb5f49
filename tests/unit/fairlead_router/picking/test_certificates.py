"""The certificate of the picker's port: a renewed one is used without a restart."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead_process.certificates import LOOK_SECONDS, Certificate
from fairlead_router.picking.serving import PickerServer
from fairlead_router.settings import Timeouts
from processkube.kubernetes_api.serving.certificates import ensure_certificates


@dataclass(slots=True)
class Served:
    """A picker's port with TLS, and the folder of its certificate. `now` changes only when a test sets it."""

    folder: Path
    port: int = 0
    now: float = 1000.0

    def renew(self) -> str:
        """Write another certificate and its key to the folder, as a kubelet does; return the certificate."""
        for name in ("apiserver.crt", "apiserver.key"):
            (self.folder / name).unlink(missing_ok=True)
        made = ensure_certificates(self.folder, "127.0.0.1")
        self.now += 1
        for path in (made.certificate, made.key):
            os.utime(path, (self.now, self.now))
        return made.certificate.read_text(encoding="utf-8")

    async def shown(self) -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", self.port))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Served, PickerServer]]:
    place = Served(tmp_path)
    place.renew()
    picker: Any = SimpleNamespace(most_bytes=1, body_memory=None)
    server = PickerServer(picker, lambda: True, Timeouts(), lambda: place.now)
    listener = socket.create_server(("127.0.0.1", 0))
    place.port = listener.getsockname()[1]
    await server.listen(listener, tls=Certificate(tmp_path / "apiserver.crt", tmp_path / "apiserver.key", "CERT_FILE, KEY_FILE", ["h2"]))
    server.sweep()
    yield place, server
    server.close()


async def test_a_renewed_certificate_is_shown_within_a_minute(served: tuple[Served, PickerServer]) -> None:
    place, server = served
    first = await place.shown()
    second = place.renew()
    server.sweep()
    assert await place.shown() == first, "the files are not looked at all the time"
    place.now += LOOK_SECONDS
    server.sweep()
    assert await place.shown() == second != first


async def test_a_pair_that_does_not_fit_leaves_the_last_one_and_is_logged_once(
    served: tuple[Served, PickerServer], caplog: pytest.LogCaptureFixture
) -> None:
    place, server = served
    first, key = await place.shown(), (place.folder / "apiserver.key").read_bytes()
    second, fitting = place.renew(), (place.folder / "apiserver.key").read_bytes()
    (place.folder / "apiserver.key").write_bytes(key)
    for _ in range(3):
        place.now += LOOK_SECONDS
        server.sweep()
        assert await place.shown() == first
    assert [record.message for record in caplog.records].count("a certificate is not replaced; the last one stays") == 1
    (place.folder / "apiserver.key").unlink()
    place.now += LOOK_SECONDS
    server.sweep()
    assert await place.shown() == first
    (place.folder / "apiserver.key").write_bytes(fitting)
    place.now += LOOK_SECONDS
    server.sweep()
    assert await place.shown() == second


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="CERT_FILE, KEY_FILE"):
        Certificate(tmp_path / "none.pem", tmp_path / "none.key", "CERT_FILE, KEY_FILE", ["h2"])
    assert ssl.HAS_ALPN
