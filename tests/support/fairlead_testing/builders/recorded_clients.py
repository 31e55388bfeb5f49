"""Recorded requests of coding agents and SDKs; see tests/contract/clients/README.md."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "contract" / "clients"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """A recorded POST. `headers` are those that the client chose, without connection headers and without its key.

    `prompt_tokens` is the number that vLLM 0.32 counted with the tokenizer and template of the tests' tiny model.
    """

    path: str
    headers: Mapping[str, str]
    prompt_tokens: int
    body: Mapping[str, Any]

    @property
    def route(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedClient:
    """One conversation with one client."""

    name: str
    client: str
    version: str
    recorded: str
    requests: tuple[RecordedRequest, ...]

    @property
    def turns(self) -> tuple[RecordedRequest, ...]:
        """The requests of the conversation itself, which are those with tools. Each continues the conversation of the
        one before.
        """
        return tuple(request for request in self.requests if len(request.body.get("tools", ())))


@cache
def recorded_clients() -> tuple[RecordedClient, ...]:
    """Return all recordings, in the order of their files' names."""
    return tuple(_read(path) for path in sorted(FOLDER.glob("*.jsonl*")))


def _read(path: Path) -> RecordedClient:
    data = path.read_bytes()
    rows = [json.loads(line) for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()]
    requests = tuple(RecordedRequest(**row) for row in rows[1:])
    facts = rows[0]
    return RecordedClient(
        name=path.name.partition(".")[0], client=facts["client"], version=facts["version"], recorded=facts["recorded"], requests=requests
    )
