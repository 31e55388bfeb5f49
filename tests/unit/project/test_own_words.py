"""Fairlead's messages are equal on every Python: none quotes the interpreter, and no answer depends on its limits.

Python's messages for a date that does not exist, text that is no number or truncated JSON differ by version, and so
does the depth at which it gives up.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("core", "controlplane", "operator", "router", "simulator", "webui", "cli", "host", "sandbox", "serve", "cluster/src")
PYTHONS_OWN = {
    *("ValueError", "TypeError", "OverflowError", "ArithmeticError", "LookupError", "KeyError", "IndexError", "AttributeError"),
    *("UnicodeError", "UnicodeDecodeError", "UnicodeEncodeError", "EOFError", "Exception", "BaseException"),
    *("json.JSONDecodeError", "binascii.Error", "csv.Error", "zlib.error", "ZoneInfoNotFoundError"),
}
WORDS_OF_OURS = "raised by a function of ours, with a remedy"
WORDS_OF_A_FAULT = "of a bug in Fairlead, or of another package's code"
ALLOWED = {
    "cli/fairlead_cli/kv_events/recording_files.py": "only of BatchUnreadable, which is ours",
    "cli/fairlead_cli/kubectl/door.py": WORDS_OF_OURS,
    "cli/fairlead_cli/kv_events/recording.py": "of httpx, which is a library",
    "cluster/src/processkube/kubeconfig.py": "the name of the missing key",
    "cluster/src/processkube/kubernetes_api/serving/exchanges.py": "of decoders: ours, and orjson's",
    "cluster/src/processkube/starting.py": "only of its own errors and the operating system's",
    "controlplane/fairlead_api/upkeep/jobs.py": "compared, not shown",
    "controlplane/fairlead_api/plans/kinds/engines.py": WORDS_OF_OURS,
    "core/fairlead/routing/contracts/catalogues.py": WORDS_OF_A_FAULT,
    "core/fairlead/schemas/reading.py": WORDS_OF_OURS,
    "core/fairlead_process/commands.py": WORDS_OF_A_FAULT,
    "core/fairlead_process/kubernetes_api.py": "only of the client's errors and the operating system's",
    "core/fairlead_process/pool_names.py": WORDS_OF_OURS,
    "router/fairlead_router/pools/pools.py": WORDS_OF_A_FAULT,
    "router/fairlead_router/tracing/exporting.py": WORDS_OF_A_FAULT,
    "router/fairlead_router/training/trainer.py": "of a process that broke off, in a log",
    "serve/fairlead_serve/starting.py": WORDS_OF_OURS,
    "simulator/fairlead_simulator/experiments/cells.py": WORDS_OF_A_FAULT,
    "simulator/fairlead_simulator/replay/command.py": WORDS_OF_OURS,
    "webui/fairlead_web/pages/ring.py": WORDS_OF_OURS,
    "webui/fairlead_web/pages/schedules.py": WORDS_OF_OURS,
}
"""Modules that may quote an error, and whose messages they quote."""


def quotes(path: Path) -> Iterator[str]:
    """Yield the places where an error that Python may have raised becomes text, other than in a log."""
    source = path.read_text(encoding="utf-8")
    if not re.search(r"\bexcept\b[^:]* as ", source):
        return  # most files: parsing them all takes seconds
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and node.name is not None and node.type is not None:
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if PYTHONS_OWN & {ast.unparse(one) for one in caught}:
                for statement in node.body:
                    if any(_is_quote(inner, node.name) for inner in _unlogged(statement)):
                        yield f"{path.relative_to(ROOT)}:{statement.lineno}"


def _unlogged(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[0] in {"logger", "log", "_log"}:
        return
    yield node
    for inner in ast.iter_child_nodes(node):
        yield from _unlogged(inner)


def _is_quote(node: ast.AST, name: str) -> bool:
    match node:
        case ast.FormattedValue(value=ast.Name(id=found)):
            return found == name
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=found)]):
            return found == name
        case ast.Attribute(value=ast.Name(id=found), attr="args" | "msg" | "reason"):
            return found == name
    return False


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def test_no_message_quotes_the_interpreter() -> None:
    found = [place for path in sources() for place in quotes(path)]
    assert [place for place in found if place.rpartition(":")[0] not in ALLOWED] == []
    assert ALLOWED.keys() - {place.rpartition(":")[0] for place in found} == set(), "these need no exception"


def test_nothing_catches_the_interpreters_limits() -> None:
    """Nesting is bounded before a document is decoded (`fairlead_process.json_documents`, `yaml_documents`)."""
    named = {path.relative_to(ROOT).as_posix() for path in sources() if "RecursionError" in path.read_text(encoding="utf-8")}
    assert named == {
        "router/fairlead_router/protocols/body_edits.py",  # what a decoder gives up on is read alike in another way
        "core/fairlead_process/json_documents.py",  # long documents of engines, of which little is read: to look at each byte costs more
        "router/fairlead_router/kv_events/wire.py",  # msgpack, whose depth shows only by decoding it
    }
