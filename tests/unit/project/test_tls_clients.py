"""All TLS clients take their context from one place, so that a new default of Python reaches all or none."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("core", "controlplane", "operator", "router", "simulator", "webui", "cli", "host", "sandbox", "serve", "cluster/src")
CONTEXTS = {"core/fairlead_client/tls.py", "cluster/src/processkube/kubeconfig.py", "cluster/src/processkube/probing.py"}
"""Modules that make contexts. The last one trusts every certificate, as a kubelet's probe does."""
CLIENTS = {"AsyncClient", "Client", "AsyncHTTPTransport", "HTTPTransport"}


def faults(path: str, source: str) -> Iterator[str]:
    """Yield the calls that make a client or a context of their own."""
    if "create_default_context" not in source and "httpx." not in source:
        return  # most files: parsing them all takes seconds
    tree = ast.parse(source)
    lenient = {id(one) for call in ast.walk(tree) if isinstance(call, ast.Call) and name_of(call) == "lenient" for one in call.args}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        given = {keyword.arg for keyword in call.keywords}
        if name_of(call) == "create_default_context" and path not in CONTEXTS and id(call) not in lenient:
            yield f"{path}:{call.lineno}: take the context of fairlead_client.tls"
        if name_of(call) in CLIENTS and ast.unparse(call.func).startswith("httpx.") and not given & {"verify", "transport", "uds"}:
            yield f"{path}:{call.lineno}: give the client verify=client_context()"


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def test_no_client_makes_a_context_of_its_own() -> None:
    files = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "/tests/" not in str(path))
    assert len(files) > 300
    found = [fault for path in files for fault in faults(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize("line", ["httpx.AsyncClient(timeout=5)", "ssl.create_default_context()", "httpx.AsyncHTTPTransport()"])
def test_such_a_client_is_found(line: str) -> None:
    assert list(faults("core/x.py", line))
