"""The command line, used by a person of any role against the fake public API."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead_cli import asking
from fairlead_client.client import ControlApi
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.world import World
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport

Command = Callable[..., tuple[int, str, str]]
"""A function that runs `fairlead` with these arguments as a person of `role` and returns exit code, output and errors.
"""


def reaching_a_fake(monkeypatch: pytest.MonkeyPatch) -> FakePublicApi:
    """Return a fake API with its usual world, and connect all commands of this test to it."""
    api = FakePublicApi(World(now=datetime.now(UTC)))

    def connected(url: str | tuple[str, ...], token: str | None, **more: Any) -> ControlApi:
        return ControlApi(url, token, StreamingAsgiTransport(api.app), **more)

    monkeypatch.setattr(asking, "ControlApi", connected)
    return api
