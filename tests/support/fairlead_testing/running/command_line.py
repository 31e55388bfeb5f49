"""The command line against the fake public API, as a person of any role."""

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
"""Runs a command with the words given, as `role`: its exit code, output and errors."""


def reaching_a_fake(monkeypatch: pytest.MonkeyPatch) -> FakePublicApi:
    """The API, with its usual world, that commands reach from now on."""
    api = FakePublicApi(World(now=datetime.now(UTC)))

    def connected(url: str | tuple[str, ...], token: str | None, **more: Any) -> ControlApi:
        return ControlApi(url, token, StreamingAsgiTransport(api.app), **more)

    monkeypatch.setattr(asking, "ControlApi", connected)
    return api
