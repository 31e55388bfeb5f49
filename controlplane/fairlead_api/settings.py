"""Settings of the control API, read once from the environment. A wrong value ends the start with one line naming variable, value and remedy."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from fairlead.errors import InvalidInput

ROLES = ("viewer", "operator", "admin", "system-operator", "system-router")
"""Roles of people in rising order, and those of the operator process and of routers."""


MOST_DAYS = 36_500
"""Longest retention: a hundred years, which is for ever here."""


class BootstrapToken(NamedTuple):
    """A token given by the environment; never stored, never expires while the process lives."""

    role: str
    name: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Days each kind of row is kept; docs/operations.md says what is lost with each. FAIRLEAD_KEEP_<NAME> sets one."""

    load_samples_days: int = 2
    rollups_10s_days: int = 7
    rollups_1m_days: int = 90
    decisions_days: int = 7
    rejections_days: int = 30
    reports_days: int = 7
    history_days: int = 180
    routing_tables_days: int = 30
    events_days: int = 90
    plans_days: int = 365
    credentials_days: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`background` off = no jobs (tests drive them by hand). Pool summaries of one moment serve everybody for `share_seconds`, percentiles in
    them for four times as long (and until they are computed again, at most twenty times)."""

    database_url: str
    bootstrap_tokens: tuple[BootstrapToken, ...] = ()
    kubeconfig: str | None = None
    auth_mode: str = "bootstrap"
    migrate: bool = True
    background: bool = True
    log_format: str = "text"
    retention: Retention = field(default_factory=Retention)
    heartbeat_seconds: float = 2.0
    share_seconds: float = 0.5


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Raises InvalidInput naming the variable."""
    url = environment.get("FAIRLEAD_DATABASE_URL", "")
    if not url.startswith("postgresql+psycopg://"):
        raise InvalidInput("FAIRLEAD_DATABASE_URL", _without_password(url), "write postgresql+psycopg://user:password@host:5432/database")
    mode = environment.get("FAIRLEAD_AUTH_MODE", "bootstrap")
    if mode not in {"bootstrap", "none"}:
        raise InvalidInput("FAIRLEAD_AUTH_MODE", mode, "write bootstrap, or none (loopback only)")
    return Settings(
        database_url=url,
        bootstrap_tokens=parse_bootstrap_tokens(environment.get("FAIRLEAD_BOOTSTRAP_TOKENS", "")),
        kubeconfig=environment.get("KUBECONFIG") or None,
        auth_mode=mode,
        migrate=switch(environment, "FAIRLEAD_MIGRATE", default=True),
        log_format=_choice(environment, "FAIRLEAD_LOG_FORMAT", ("text", "json")),
        retention=Retention(**{one.name: _days(environment, one.name, one.default) for one in fields(Retention)}),
    )


def parse_bootstrap_tokens(text: str) -> tuple[BootstrapToken, ...]:
    """`role:name:secret,…` → tokens. The secrets never appear in an error."""
    tokens = []
    for number, part in enumerate((part for part in text.split(",") if part.strip()), 1):
        pieces = part.strip().split(":", 2)
        if len(pieces) != 3 or pieces[0] not in ROLES or not pieces[1] or len(pieces[2]) < 16:
            shown = f"{':'.join(pieces[:2])}:…" if len(pieces) == 3 else "…"
            remedy = f"write role:name:secret with a role of {', '.join(ROLES)} and a secret of at least 16 characters (entry {number})"
            raise InvalidInput("FAIRLEAD_BOOTSTRAP_TOKENS", shown, remedy)
        tokens.append(BootstrapToken(*pieces))
    return tuple(tokens)


def switch(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    """A variable that is 1 or 0. Raises InvalidInput naming it."""
    value = environment.get(name, "1" if default else "0")
    if value not in {"0", "1"}:
        raise InvalidInput(name, value, "write 1 or 0")
    return value == "1"


def _days(environment: Mapping[str, str], name: str, default: Any) -> int:
    variable = f"FAIRLEAD_KEEP_{name.upper()}"
    value = environment.get(variable, str(default))
    if not value.isdecimal() or not 1 <= int(value) <= MOST_DAYS:
        raise InvalidInput(variable, value, f"write a number of days, 1 to {MOST_DAYS}")
    return int(value)


def _choice(environment: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = environment.get(name, choices[0])
    if value not in choices:
        raise InvalidInput(name, value, f"write {' or '.join(choices)}")
    return value


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"…@{tail}" if at and ":" in head else url
