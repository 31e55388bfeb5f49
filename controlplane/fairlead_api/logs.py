"""Log lines: words in lower case plus key=value pairs (or JSON). No secrets, no prompts."""

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


class KeyValues(logging.Formatter):
    """`2026-11-21T10:00:00Z INFO event key=value`; with `as_json` one object per line."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._json = as_json

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        pairs = {name: value for name, value in record.__dict__.items() if name not in _STANDARD and value is not None}
        trace = self.formatException(record.exc_info) if record.exc_info else None
        if self._json:
            document = {"at": at, "level": record.levelname.lower(), "logger": record.name, "event": record.getMessage(), **pairs}
            return json.dumps(document if trace is None else {**document, "trace": trace}, default=str)
        line = " ".join([at, record.levelname, record.getMessage(), *(f"{name}={_shown(value)}" for name, value in pairs.items())])
        return line if trace is None else f"{line}\n{trace}"


def _shown(value: object) -> str:
    text = str(value).replace("\n", " ")
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text else text


def configure(log_format: str, level: int = logging.INFO) -> None:
    """Sends all logs to standard error in the given format (`text` or `json`)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValues(as_json=log_format == "json"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("alembic", "apscheduler", "httpx", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
