"""The format of log lines in all processes: time, level, logger, event, and `name=value` for the event's data.

The event is always a fixed sentence. Its data are separate named values (`extra=`) and never part of the sentence.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class LogLines(logging.Formatter):
    """A formatter that writes one line per record, as text or as JSON. A traceback is in the field `trace` in JSON, and
    in further lines in text.
    """

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = {name: value for name, value in record.__dict__.items() if name not in _STANDARD and value is not None}
        trace = self.formatException(record.exc_info) if record.exc_info else None
        if self._as_json:
            document = {"at": at, "level": record.levelname.lower(), "logger": record.name, "event": record.getMessage(), **values}
            return json.dumps(document if trace is None else {**document, "trace": trace}, ensure_ascii=False, default=str)
        event = record.getMessage().replace("\n", "\\n")
        line = " ".join([at, record.levelname, record.name, event, *(f"{name}={_shown(value)}" for name, value in values.items())])
        return line if trace is None else f"{line}\n{trace}"


def _shown(value: Any) -> str:
    """Return the value as text. It is quoted if a reader, or a program such as `cut`, could take it for several
    values.
    """
    text = str(value)
    plain = text.isprintable() and not set(text) & set(' "=')
    return text if plain and text else json.dumps(text, ensure_ascii=False)


def configure(*, level: str, as_json: bool) -> None:
    """Send all logs of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines(as_json=as_json))
    logging.basicConfig(level=level, handlers=[handler], force=True)
