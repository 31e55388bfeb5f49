"""No client of Fairlead reads an answer without a bound.

Clients are made in one place for each library, and direct reads give the reason for their exception.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("core", "controlplane", "operator", "router", "simulator", "webui", "cli", "host", "sandbox", "serve", "cluster/src")
MAKERS = {
    "core/fairlead_client/http_clients.py": "makes httpx's clients, each with a bound",
    "core/fairlead_process/kubernetes_api.py": "makes aiohttp's sessions, whose answers are BoundedResponse",
    "operator/fairlead_operator/sleepers.py": "reads a number of bytes",
    "cluster/src/processkube/kubernetes_client.py": "reads by pieces up to a bound",
    "cluster/src/processkube/kubernetes_api/serving/proxying.py": "passes pieces on and keeps none",
}
"""Modules that may make a client or a session, and the bound on its answers."""
BY_PIECES = {
    "core/fairlead_client/http_clients.py": "says what it is",
    "core/fairlead_client/internal.py": "the routers' stream, whose lines have a bound",
    "core/fairlead_client/public/calling.py": "live events and exports",
}
"""Modules that may read an endless answer, as they read it in pieces."""
CLIENTS = {"AsyncClient", "Client", "ClientSession", "HTTPConnection", "HTTPSConnection", "urlopen", "PoolManager"}
CALLS_OF_MODULES = {
    f"{module}.{verb}" for module in ("httpx", "requests") for verb in ("get", "post", "put", "request", "stream", "Session")
}
WORDS = CLIENTS | CALLS_OF_MODULES | {"BY_PIECES", "fairlead_by_pieces"}


def faults(path: str, source: str) -> Iterator[str]:
    """Yield the calls that make a client of their own, and the names that omit a bound."""
    if not any(word in source for word in WORDS):
        return  # most files: parsing them all takes seconds
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and path not in MAKERS and _is_client(ast.unparse(node.func)):
            yield f"{path}:{node.lineno}: make it with BoundedClient, or give the place a bound and name it here"
        if isinstance(node, ast.Name) and node.id == "BY_PIECES" and path not in BY_PIECES:
            yield f"{path}:{node.lineno}: an answer without an end; name the place here, with what bounds it"
        if isinstance(node, ast.Constant) and node.value == "fairlead_by_pieces" and path not in BY_PIECES:
            yield f"{path}:{node.lineno}: say BY_PIECES"


def _is_client(function: str) -> bool:
    return function.rpartition(".")[2] in CLIENTS or function in CALLS_OF_MODULES


def test_every_client_of_ours_is_made_where_its_answers_have_a_bound() -> None:
    files = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if not {"tests", "testing"} & {*path.parts})
    assert len(files) > 300
    found = [fault for path in files for fault in faults(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "httpx.AsyncClient(timeout=5)",
        "AsyncClient()",
        "aiohttp.ClientSession()",
        "urllib.request.urlopen(url)",
        "http.client.HTTPSConnection(host)",
        "httpx.get(url)",
        "requests.Session()",
        "client.stream('GET', url, extensions=BY_PIECES)",
        "client.stream('GET', url, extensions={'fairlead_by_pieces': True})",
    ],
)
def test_another_client_is_found(line: str) -> None:
    assert list(faults("core/x.py", line))


@pytest.mark.parametrize("path", sorted(MAKERS.keys() | BY_PIECES.keys()))
def test_what_is_named_here_exists(path: str) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    assert "BY_PIECES" in source or any(name in source for name in CLIENTS)
