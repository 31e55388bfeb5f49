"""The router's settings, read from the environment once, with errors that name variable, value and remedy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from fairlead.errors import InvalidInput

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """All in seconds. `first_byte` runs per attempt from sending a request to an engine until its answer begins, `idle` from one piece of an answer
    to the next, `total` over all attempts. `header` and `body` are how long a client may take to send them, `keep_alive` how long its connection may
    idle between requests."""

    connect: float = 2.0
    first_byte: float = 300.0
    idle: float = 60.0
    total: float = 1800.0
    body: float = 60.0
    header: float = 10.0
    keep_alive: float = 75.0
    shutdown: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """Everything the router's process is told. Sizes in bytes; `decision_sample_rate` (0-1) is the share of routing decisions recorded."""

    api_url: str
    api_token: str
    router_id: str
    spool_dir: Path
    max_body_bytes: int = 8 * MEBIBYTE
    max_upload_bytes: int = 32 * MEBIBYTE
    max_header_bytes: int = 64 * 1024
    spool_max_bytes: int = 64 * MEBIBYTE
    max_connections: int = 8192
    max_retries: int = 2
    gateway_keys: tuple[str, ...] = field(default=(), repr=False)
    """API keys of which clients must show one; none: everybody may ask."""
    decision_sample_rate: float = 0.05
    log_format: str = "text"
    log_level: str = "INFO"
    timeouts: Timeouts = Timeouts()


class _Reader:
    """Typed access to the environment; every complaint is an InvalidInput naming the variable."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def required(self, name: str, remedy: str) -> str:
        value = self._environment.get(name, "").strip()
        if not value:
            raise InvalidInput(name, self._environment.get(name), remedy)
        return value

    def text(self, name: str, default: str) -> str:
        return self._environment.get(name, "").strip() or default

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name, default)
        if value not in allowed:
            raise InvalidInput(name, value, f"use one of {', '.join(allowed)}")
        return value

    def integer(self, name: str, default: int, *, least: int) -> int:
        text = self.text(name, str(default))
        try:
            value = int(text)
        except ValueError:
            raise InvalidInput(name, text, f"give a whole number of at least {least}") from None
        if value < least:
            raise InvalidInput(name, text, f"give a whole number of at least {least}")
        return value

    def share(self, name: str, default: float) -> float:
        text = self.text(name, str(default))
        try:
            value = float(text)
        except ValueError:
            raise InvalidInput(name, text, "give a share between 0 and 1") from None
        if not 0 <= value <= 1:
            raise InvalidInput(name, text, "give a share between 0 and 1")
        return value

    def seconds(self, name: str, default: float) -> float:
        text = self.text(name, str(default))
        try:
            value = float(text)
        except ValueError:
            raise InvalidInput(name, text, "give seconds as a positive number") from None
        if not 0 < value < float("inf"):
            raise InvalidInput(name, text, "give seconds as a positive number")
        return value


SHORTEST_KEY = 16


def _keys(reader: _Reader) -> tuple[str, ...]:
    """API keys: separated by commas in FAIRLEAD_GATEWAY_KEYS, one a line in FAIRLEAD_GATEWAY_KEYS_FILE, where `#` begins a comment."""
    keys = [("FAIRLEAD_GATEWAY_KEYS", key.strip()) for key in reader.text("FAIRLEAD_GATEWAY_KEYS", "").split(",")]
    path = reader.text("FAIRLEAD_GATEWAY_KEYS_FILE", "")
    if path:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InvalidInput("FAIRLEAD_GATEWAY_KEYS_FILE", path, f"give a file this process can read ({reason})") from None
        keys += [("FAIRLEAD_GATEWAY_KEYS_FILE", line.partition("#")[0].strip()) for line in lines]
    found = tuple(key for _, key in keys if key)
    for name, key in keys:
        if key and (len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key):
            shown = f"a key of {len(key)} characters"  # never the key itself: this is printed
            raise InvalidInput(name, shown, f"give keys of at least {SHORTEST_KEY} printable ASCII characters without spaces")
    if path and not found:
        raise InvalidInput("FAIRLEAD_GATEWAY_KEYS_FILE", path, "put at least one key into it, or unset the variable to let everybody ask")
    return found


def read_settings(environment: Mapping[str, str]) -> RouterSettings:
    """Settings from environment variables. Raises InvalidInput for a missing or unusable one."""
    reader = _Reader(environment)
    api_url = reader.required("FAIRLEAD_API_URL", "set it to the control API's address, such as http://127.0.0.1:8080").rstrip("/")
    if urlsplit(api_url).scheme not in {"http", "https"} or not urlsplit(api_url).hostname:
        raise InvalidInput("FAIRLEAD_API_URL", api_url, "give an address that starts with http:// or https://")
    spool_dir = Path(reader.required("FAIRLEAD_SPOOL_DIR", "set it to a directory this process may write to"))
    try:
        spool_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput("FAIRLEAD_SPOOL_DIR", str(spool_dir), f"give a directory this process may write to ({error.strerror})") from None
    defaults = Timeouts()
    return RouterSettings(
        api_url=api_url,
        api_token=reader.required("FAIRLEAD_API_TOKEN", "set it to a token with the system role"),
        router_id=reader.required("FAIRLEAD_ROUTER_ID", "set it to a name that stays the same over restarts, such as router-0"),
        spool_dir=spool_dir,
        max_body_bytes=reader.integer("FAIRLEAD_MAX_BODY_BYTES", 8 * MEBIBYTE, least=1024),
        max_upload_bytes=reader.integer("FAIRLEAD_MAX_UPLOAD_BYTES", 32 * MEBIBYTE, least=1024),
        max_header_bytes=reader.integer("FAIRLEAD_MAX_HEADER_BYTES", 64 * 1024, least=1024),
        spool_max_bytes=reader.integer("FAIRLEAD_SPOOL_MAX_BYTES", 64 * MEBIBYTE, least=64 * 1024),
        decision_sample_rate=reader.share("FAIRLEAD_DECISION_SAMPLE_RATE", 0.05),
        max_connections=reader.integer("FAIRLEAD_MAX_CONNECTIONS", 8192, least=1),
        gateway_keys=_keys(reader),
        max_retries=reader.integer("FAIRLEAD_MAX_RETRIES", 2, least=0),
        log_format=reader.choice("FAIRLEAD_LOG_FORMAT", "text", ("text", "json")),
        log_level=reader.choice("FAIRLEAD_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR")),
        timeouts=Timeouts(
            connect=reader.seconds("FAIRLEAD_CONNECT_TIMEOUT_SECONDS", defaults.connect),
            first_byte=reader.seconds("FAIRLEAD_FIRST_BYTE_TIMEOUT_SECONDS", defaults.first_byte),
            idle=reader.seconds("FAIRLEAD_IDLE_TIMEOUT_SECONDS", defaults.idle),
            total=reader.seconds("FAIRLEAD_TOTAL_TIMEOUT_SECONDS", defaults.total),
            body=reader.seconds("FAIRLEAD_BODY_TIMEOUT_SECONDS", defaults.body),
            header=reader.seconds("FAIRLEAD_HEADER_TIMEOUT_SECONDS", defaults.header),
            keep_alive=reader.seconds("FAIRLEAD_KEEP_ALIVE_SECONDS", defaults.keep_alive),
            shutdown=reader.seconds("FAIRLEAD_SHUTDOWN_SECONDS", defaults.shutdown),
        ),
    )
