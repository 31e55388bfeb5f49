"""One format of log lines for all processes.

The event is a fixed sentence; its data are named values (`extra=`), never formatted into the sentence:

    logger.warning("report set aside", extra={"file": path.name, "error": str(error)})

    2026-11-21T10:00:00.000Z WARNING fairlead_router.reporting report set aside file=7.json error="disk full"
    {"at": "2026-11-21T10:00:00.000Z", "level": "warning", "logger": "fairlead_router.reporting", "event": "report set
     aside", "file": …}

If warnings and errors repeat, only a few of them are written and the others are counted (`FloodGate`).

Prompts, keys and tokens are never logged. Values have the same names everywhere: `error` for the problem, `pool` as
namespace/name, `instance`, `router`, `request`, `session`.
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

from fairlead_process.environment import group, variable
from fairlead_process.kinds import Choice

CHATTY = ("alembic", "apscheduler", "httpcore", "httpx", "kopf.activities", "kopf.objects", "uvicorn.access", "uvicorn.error")
"""Loggers of libraries whose INFO lines repeat Fairlead's own lines or have no use."""

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_OF_LIBRARIES = frozenset({"color_message", "k8s_ref", "k8s_skip", "settings"})
"""Attributes that uvicorn and kopf attach to log records for their own formatters; they are left out of the lines."""


_PROGRAM = spec.name if (spec := getattr(sys.modules["__main__"], "__spec__", None)) is not None else "__main__"
"""The name of the module that was run with `python -m`. Inside that module, `__name__` is only `__main__`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Settings for the logs that a process writes to standard error."""

    format: str = field(default="text", metadata=variable("FAIRLEAD_LOG_FORMAT", Choice(("text", "json")), "form of a log line"))
    level: str = field(
        default="INFO",
        metadata=variable(
            "FAIRLEAD_LOG_LEVEL",
            Choice(("DEBUG", "INFO", "WARNING", "ERROR")),
            "least important lines that are written",
            "DEBUG is for tracing faults",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlyLogs:
    """Log settings of a process that gets all its other settings on its command line."""

    logs: LogSettings = field(default_factory=LogSettings, metadata=group(LogSettings))


class LogLines(logging.Formatter):
    """Formats each record as one line of text or of JSON. A traceback follows as lines of its own in text and is the
    member `trace` in JSON.
    """

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = _values(record)
        name = _PROGRAM if record.name == "__main__" else record.name
        trace = self.formatException(record.exc_info) if record.exc_info else None
        if self._as_json:
            document = {"at": at, "level": record.levelname.lower(), "logger": name, "event": record.getMessage(), **values}
            return json.dumps(document if trace is None else {**document, "trace": trace}, ensure_ascii=False, default=str)
        event = record.getMessage().replace("\n", "\\n")
        line = " ".join([at, record.levelname, name, event, *(f"{name}={_shown(value)}" for name, value in values.items())])
        return line if trace is None else f"{line}\n{trace}"


def _values(record: logging.LogRecord) -> dict[str, Any]:
    attributes = record.__dict__
    values = {
        name: value for name, value in attributes.items() if name not in _STANDARD and name not in _OF_LIBRARIES and value is not None
    }
    subject = attributes.get("k8s_ref")
    return {"object": "/".join(filter(None, (subject.get("namespace"), subject.get("name")))), **values} if subject else values


def _shown(value: object) -> str:
    """Return the value as text, quoted if it could otherwise be mistaken for several values."""
    text = str(value)
    plain = text.isprintable() and not set(text) & set(' "=')
    return text if plain and text else json.dumps(text, ensure_ascii=False)


MOST_ALIKE = 10
"""Maximum number of lines with the same event and subject that are written in `WINDOW_SECONDS`."""
WINDOW_SECONDS = 60.0
MOST_SUBJECTS = 1_000
"""Maximum number of events and subjects that are counted separately. If there are more, their lines are counted by
logger alone.
"""
_SUBJECTS = ("pool", "instance", "task")


class FloodGate(logging.Filter):
    """Passes a few similar warnings and errors on and counts the others, because a full disk, a stranger or an engine
    can cause very many lines. The next similar line that is written has the number of lines that were left out
    (`left_out`). `clock` gives seconds.

    Lines are similar if they have the same event and the same pool, instance or task.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: dict[tuple[object, ...], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is written."""
        if record.levelno < logging.WARNING:
            return True
        now = self._clock()
        window = self._window((record.name, record.msg, *(record.__dict__.get(name) for name in _SUBJECTS)), now)
        if now - window.began >= WINDOW_SECONDS:
            if window.left_out:
                record.left_out = window.left_out
            window.began, window.written, window.left_out = now, 0, 0
        if window.written >= MOST_ALIKE:
            window.left_out += 1
            return False
        window.written += 1
        return True

    def _window(self, kind: tuple[object, ...], now: float) -> "_Window":
        found = self._windows.get(kind)
        if found is None and len(self._windows) >= MOST_SUBJECTS:
            self._windows = {one: window for one, window in self._windows.items() if now - window.began < WINDOW_SECONDS or window.left_out}
            kind = kind[:1] if len(self._windows) >= MOST_SUBJECTS else kind
            found = self._windows.get(kind)
        return self._windows.setdefault(kind, _Window(now)) if found is None else found


class _Window:
    """Counts the similar lines since `began`: lines that were written, and lines that were left out."""

    __slots__ = ("began", "left_out", "written")

    def __init__(self, began: float) -> None:
        self.began = began
        self.written = self.left_out = 0


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send all logs of this process to `stream`; None = standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LogLines(as_json=settings.format == "json"))
    handler.addFilter(FloodGate())
    logging.basicConfig(level=settings.level, handlers=[handler], force=True)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
