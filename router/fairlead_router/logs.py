"""Structured logs: one line per event, as JSON or key=value. Prompts, keys and tokens are never logged."""

import logging
import sys
from typing import TextIO

import orjson

_QUOTED = frozenset(' "=')
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


class JsonLines(logging.Formatter):
    """One JSON object a line: time (Unix seconds), level, logger, event and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {"time": round(record.created, 3), "level": record.levelname.lower(), "logger": record.name}
        line["event"] = record.getMessage()
        line.update(_fields(record))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class KeyValueLines(logging.Formatter):
    """`time level logger event key=value …`, values quoted when they hold spaces or quotes."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [self.formatTime(record, "%Y-%m-%dT%H:%M:%S"), record.levelname.lower(), record.name, record.getMessage()]
        for key, value in _fields(record).items():
            text = str(value)
            parts.append(f"{key}={orjson.dumps(text).decode()}" if _QUOTED & set(text) else f"{key}={text}")
        line = " ".join(parts).replace("\n", "\\n")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logs(form: str, level: str, stream: TextIO | None = None) -> None:
    """Send all logs to `stream` (default standard error) in `form`: `json` or `text`."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else KeyValueLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
