"""In every process, a log line is a fixed sentence with named values; the source is checked."""

import ast
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
COMPONENTS = ("core", "controlplane", "operator", "router", "simulator", "webui", "cli", "host", "sandbox", "serve", "cluster/src")
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
LOGGERS = {"logger", "log", "_log", "_logger"}
NAMED = re.compile(rf"\bgetLogger\b|\b({'|'.join(LOGGERS)})[\s)\\]*\.[\s\\]*({'|'.join(METHODS)})\b")
"""Text that marks a file with log lines; only such files are parsed."""
TAKEN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "at", "level", "logger", "event", "trace"}
"""Names that a log record or a log line already has: as a value's name, one raises KeyError or hides a value."""
OTHER_WORDS_FOR_ERROR = {"problem", "exception", "exc", "err", "cause", "why"}
"""Names of values for which every log line uses `error`."""


@cache
def nodes() -> tuple[tuple[str, ast.AST], ...]:
    """Return the syntax nodes of all components with their places; the source is parsed once for all tests."""
    return tuple(
        (f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", node)
        for component in COMPONENTS
        for path in (ROOT / component).rglob("*.py")
        if NAMED.search(source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call | ast.Assign)
    )


@cache
def log_calls() -> tuple[tuple[str, ast.Call], ...]:
    return tuple((place, node) for place, node in nodes() if isinstance(node, ast.Call) and is_log_call(node))


def is_log_call(node: ast.Call) -> bool:
    if not (isinstance(node.func, ast.Attribute) and node.func.attr in METHODS):
        return False
    target = node.func.value
    of_logging = isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and target.func.attr == "getLogger"
    return of_logging or (isinstance(target, ast.Name) and target.id in LOGGERS)


def is_sentence(call: ast.Call) -> bool:
    """Return whether its only argument (after the level, for `log`) is a constant without inserted values."""
    *level, event = call.args
    with_level = isinstance(call.func, ast.Attribute) and call.func.attr == "log"
    said = str(event.value) if isinstance(event, ast.Constant) else "%"
    return len(level) == int(with_level) and "%" not in said and "=" not in said


def values(call: ast.Call) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):
            yield from (key.value for key in keyword.value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


def test_there_are_log_calls_to_look_at() -> None:
    assert len(log_calls()) > 50


def test_an_event_is_a_fixed_sentence_without_data_in_it() -> None:
    formatted = [place for place, call in log_calls() if not is_sentence(call)]
    assert formatted == []


def test_a_value_takes_no_name_that_a_line_has_already() -> None:
    assert [(place, name) for place, call in log_calls() for name in values(call) if name in TAKEN] == []


def test_what_went_wrong_is_called_error_everywhere() -> None:
    assert [(place, name) for place, call in log_calls() for name in values(call) if name in OTHER_WORDS_FOR_ERROR] == []


NAMES_OF_LOGGERS = {"__name__", "'uvicorn.error'", "'uvicorn.access'"}
"""Names that a logger may have: its module's, or a name of the server that a class of the router extends."""


def test_logs_are_written_by_loggers_named_after_their_modules() -> None:
    named = [
        place
        for place, node in nodes()
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "getLogger"
        and not (node.value.args and ast.unparse(node.value.args[0]) in NAMES_OF_LOGGERS)
    ]
    assert named == []
