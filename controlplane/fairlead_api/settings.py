"""Settings of the control API, read once from the environment; docs/settings.md is generated from them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network
from itertools import pairwise
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict

from fairlead.costs.money import CURRENCY_PATTERN
from fairlead.errors import InvalidInput
from fairlead_api.autoscaler_settings import AutoscalerSettings
from fairlead_api.oidc_settings import OidcSettings
from fairlead_client.resources.access import AccessRole
from fairlead_process.environment import group, read, variable
from fairlead_process.kinds import Address, Choice, Networks, Parsed, Switch, Text, Whole
from fairlead_process.logs import LogSettings
from fairlead_process.shared_variables import KUBECONFIG

ROLES = tuple(role.value for role in AccessRole if role is not AccessRole.NONE)
"""The roles that an API token may have."""

MOST_DAYS = 36_500
"""Maximum retention in days: a hundred years, in effect without end."""

DATABASE_SCHEME = "postgresql+psycopg://"
_OTHER_SCHEMES = ("postgresql://", "postgres://")
"""Other schemes of database URLs that libpq accepts. They occur in secrets of Postgres operators and providers."""


DATABASE_URL = variable(
    "FAIRLEAD_DATABASE_URL",
    Parsed(lambda text: _database_url(text), f"{DATABASE_SCHEME}user:password@host:5432/database", "URL", secret=True),
    "the Postgres database",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    """The settings that a migration of the database needs."""

    url: str = field(repr=False, metadata=DATABASE_URL)
    logs: LogSettings = field(default_factory=LogSettings, metadata=group(LogSettings))


class BootstrapToken(NamedTuple):
    """A token that is set in the environment. It is never stored, and does not expire while the process runs."""

    role: str
    name: str
    secret: str


def _days(kept: str, default: int, goes: str, costs: str) -> Any:
    return field(
        default=default, metadata=variable(f"FAIRLEAD_KEEP_{kept}_DAYS", Whole("days", 1, MOST_DAYS), goes, f"lost with it: {costs}")
    )


ROLLED_UP = ("load_samples_days", "rollups_10s_days", "rollups_1m_days")
"""Retention settings, from the finest to the coarsest rollups. Coarser rows are computed from the next finer rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """For each kind of row, the number of days for which rows are kept."""

    load_samples_days: int = _days(
        "LOAD_SAMPLES",
        2,
        "load of each instance, arrivals and SLO attainment by the second",
        "heatmaps by the second; older heatmaps show 10 s",
    )
    rollups_10s_days: int = _days(
        "ROLLUPS_10S",
        7,
        "load by 10 s, SLO attainment by the minute; not fewer days than FAIRLEAD_KEEP_LOAD_SAMPLES_DAYS",
        "heatmaps and charts by 10 s, SLO attainment by the minute; older ones show minutes and hours",
    )
    rollups_1m_days: int = _days(
        "ROLLUPS_1M",
        90,
        "load and use of gateway keys by the minute, SLO attainment and tasks by the hour; not fewer days than FAIRLEAD_KEEP_ROLLUPS_10S_DAYS",
        "older heatmaps, attainment of SLO versions, use of keys; below 30 also the remaining error budgets",
    )
    cost_days: int = _days(
        "COST",
        400,
        "lives of instances, their prices, and the usage by key, class and session per hour",
        "cost of that time, by pool, key, class or session",
    )
    decisions_days: int = _days("DECISIONS", 7, "sampled decisions", "why a request was sent to its instance")
    traffic_days: int = _days(
        "TRAFFIC", 1, "recorded requests: lengths and hashes, no text", "what-if on the traffic of that time, and turns of session trees"
    )
    rejections_days: int = _days("REJECTIONS", 30, "refusals per second", "refusals by cause")
    reports_days: int = _days(
        "REPORTS", 7, "ids of stored reports", "what routers report later than that is not stored, as it might be counted twice"
    )
    history_days: int = _days(
        "HISTORY",
        180,
        "migrations, re-routes, former holders of sessions, ended sessions",
        "which instances held a session earlier; its present holder and its last move stay",
    )
    routing_tables_days: int = _days(
        "ROUTING_TABLES",
        30,
        "former routing tables, who acknowledged them, routers not seen since",
        "which table a router used at that time; the table in force stays",
    )
    events_days: int = _days("EVENTS", 90, "changes of instances' states, pool events, scaling decisions, gone instances", "their past")
    plans_days: int = _days("PLANS", 365, "plans that expired or can no longer be undone", "the plan's page; its audit entries stay")
    simulations_days: int = _days("SIMULATIONS", 90, "simulations and their results", "the tried policies; plans made from them stay")
    notices_days: int = _days("NOTICES", 30, "notices that were delivered or given up, with their attempts", "what receivers were sent")
    credentials_days: int = _days("CREDENTIALS", 30, "web sessions and login links that ended", "nothing")

    def __post_init__(self) -> None:
        """Raises InvalidInput if finer rows are kept longer than coarser rows, because a late report rebuilds coarser
        rows from finer ones.
        """
        kept = [(one.metadata["variable"].name, getattr(self, one.name)) for one in fields(self) if one.name in ROLLED_UP]
        for (finer, least), (name, days) in pairwise(kept):
            if days < least:
                raise InvalidInput(name, days, f"write {least} or more (the days of {finer}), or lower {finer}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the control API.

    With `background` False, no background jobs run (tests run them explicitly).

    Some results are cached for multiples of `share_seconds`:

    - Sets of pool summaries: `share_seconds`.
    - The figures of the last five minutes in a summary: four times `share_seconds`. Figures that are slow to compute:
      forty times their computing time, at most ten times `share_seconds`. Until the figures have been computed again,
      they are still used, at most for twenty times `share_seconds`.
    - The figures of all instances of a pool over a long range that ends now: they are read again after thirty times
      `share_seconds`, and used for at most 120 times `share_seconds`.
    """

    database_url: str = field(repr=False, metadata=DATABASE_URL)
    bootstrap_tokens: tuple[BootstrapToken, ...] = field(
        default=(),
        repr=False,
        metadata=variable(
            "FAIRLEAD_BOOTSTRAP_TOKENS",
            Parsed(lambda text: parse_bootstrap_tokens(text), "role:name:secret", "`role:name:secret` with commas", secret=True),
            "tokens that are valid while they are listed here; a router's token has the routers' name",
            "without any, nobody can make the first token",
            default_shown="none",
        ),
    )
    kubeconfig: str | None = field(default=None, metadata=KUBECONFIG)
    auth_mode: str = field(
        default="bootstrap",
        metadata=variable(
            "FAIRLEAD_AUTH_MODE",
            Choice(("bootstrap", "kubernetes", "oidc", "none")),
            "how people sign in",
            "API tokens and login links always; kubernetes: with tokens of the cluster too, and rights by its "
            "RBAC; oidc: by an identity provider "
            "too, and rights by FAIRLEAD_OIDC_PEOPLE and FAIRLEAD_OIDC_GROUPS; none accepts everybody as admin, only on a loopback address",
        ),
    )
    kubernetes_audience: str | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_KUBERNETES_AUDIENCE",
            Text("an audience"),
            "the audience for which Kubernetes tokens must be made (`kubectl create token NAME --audience=…`)",
            "without it, tokens for the API server itself sign in here too",
            default_shown="that of the API server",
        ),
    )
    audit_signing_key: str | None = field(
        default=None,
        repr=False,
        metadata=variable(
            "FAIRLEAD_AUDIT_SIGNING_KEY",
            Text("32 random bytes in base64, as of `openssl rand -base64 32`", secret=True),
            "the Ed25519 key that signs exports of the audit log",
            "without one, exports have their hash chain and no signature; a changed key makes another public key",
            default_shown="none",
        ),
    )
    oidc: OidcSettings = field(default_factory=OidcSettings, metadata=group(OidcSettings))
    requests_per_second: int = field(
        default=200,
        metadata=variable(
            "FAIRLEAD_REQUESTS_PER_SECOND",
            Whole("requests", 0, 1_000_000),
            "requests that one person's session or token may make each second at one API process; in a burst, ten times as many",
            "more are answered 429 with Retry-After; 0: no limit; routers and the operator are never limited",
        ),
    )
    router_live_seconds: int = field(
        default=10,
        metadata=variable(
            "FAIRLEAD_ROUTER_LIVE_SECONDS",
            Whole("seconds", 3, 3600),
            "how long a router is live after its last report",
            "with a larger value, drains wait longer for a router that vanished; with a smaller one, slow routers count as gone; set the "
            "same value for all API processes",
        ),
    )
    migrate: bool = field(
        default=True,
        metadata=variable(
            "FAIRLEAD_MIGRATE",
            Switch(),
            "bring the database's schema up to date at the start",
            "0 leaves that to `python -m fairlead_api.migrating`",
        ),
    )
    simulation_processes: int = field(
        default=2,
        metadata=variable(
            "FAIRLEAD_SIMULATION_PROCESSES",
            Whole("processes", 0, 64),
            "maximum number of simulator processes for what-if and plans, at low priority",
            "0: simulations are refused; more processes finish sooner and use more cores",
        ),
    )
    gateway_url: str | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_GATEWAY_URL",
            Address("http://127.0.0.1:8000"),
            "the routers' address, to which test requests of people are sent",
            "without it test requests are refused; nothing else needs it",
            default_shown="none",
        ),
    )
    opencost_url: str | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_OPENCOST_URL",
            Address("http://opencost.opencost:9003"),
            "the address of OpenCost, which measures the cost of instances in pools without a declared price",
            "without it only prices of the pools' specs count",
            default_shown="none",
        ),
    )
    opencost_currency: str = field(
        default="USD",
        metadata=variable(
            "FAIRLEAD_OPENCOST_CURRENCY",
            Parsed(lambda text: _currency(text), "a currency of three capital letters, such as EUR"),
            "the currency of OpenCost's figures; OpenCost does not report it",
            "a currency other than OpenCost's makes every amount wrong",
        ),
    )
    webhook_networks: tuple[IPv4Network | IPv6Network, ...] = field(
        default=(),
        metadata=variable(
            "FAIRLEAD_WEBHOOK_NETWORKS",
            Networks(),
            "networks to which webhooks may post, besides public addresses; http is allowed only in these networks",
            "without any, notices go to public addresses by https alone; an admin who makes a webhook can reach every address in these networks",
            default_shown="none",
        ),
    )
    autoscalers: AutoscalerSettings = field(default_factory=AutoscalerSettings, metadata=group(AutoscalerSettings))
    retention: Retention = field(default_factory=Retention, metadata=group(Retention))
    logs: LogSettings = field(default_factory=LogSettings, metadata=group(LogSettings))
    background: bool = True
    heartbeat_seconds: float = 2.0
    share_seconds: float = 0.5

    def __post_init__(self) -> None:
        """Raises InvalidInput for settings that contradict each other."""
        self.oidc.check(self.auth_mode)
        self.autoscalers.check()


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings from environment variables. Raises InvalidInput for a missing or invalid variable."""
    return read(Settings, environment)


def parse_bootstrap_tokens(text: str) -> tuple[BootstrapToken, ...]:
    """Parse `role:name:secret,…` into tokens. Error messages show no part of an entry, because the secret may be in the
    wrong position.
    """
    tokens = []
    for number, part in enumerate((part for part in text.split(",") if part.strip()), 1):
        pieces = part.strip().split(":", 2)
        if len(pieces) != 3 or pieces[0] not in ROLES or not pieces[1] or len(pieces[2]) < 16:
            remedy = f"write role:name:secret with a role of {', '.join(ROLES)} and a secret of at least 16 characters (entry {number})"
            raise InvalidInput("FAIRLEAD_BOOTSTRAP_TOKENS", "…", remedy)
        tokens.append(BootstrapToken(*pieces))
    return tuple(tokens)


def _currency(text: str) -> str:
    if not re.fullmatch(CURRENCY_PATTERN, text):
        raise ValueError(text)
    return text


_OTHER_FORMS = (
    ("jdbc:", "this URL begins with jdbc: and is for Java; in CloudNativePG's Secret the key `uri` has a URL in the right form"),
    ("host=", "this text is a list of keywords and not a URL"),
    ("dbname=", "this text is a list of keywords and not a URL"),
)


def _database_url(text: str) -> str:
    """Return the database's URL. Raises InvalidInput, which shows nothing of the text, because the text contains a
    password.
    """
    wanted = f"write {DATABASE_SCHEME}user:password@host:5432/database"
    scheme, _, rest = text.partition("://")
    if f"{scheme}://" not in (DATABASE_SCHEME, *_OTHER_SCHEMES) or not rest:
        form = next((said for begins, said in _OTHER_FORMS if begins in text), "this text begins differently")
        raise InvalidInput("FAIRLEAD_DATABASE_URL", "…", f"{wanted}; {form}")
    if not _is_read_as_meant(rest):
        remedy = f"{wanted}, with the characters % : / ? # [ ] @ of a user, password or database as %25, %3A and so on"
        raise InvalidInput("FAIRLEAD_DATABASE_URL", "…", remedy)
    return DATABASE_SCHEME + rest


def _is_read_as_meant(rest: str) -> bool:
    """Return whether libpq divides `rest`, the URL after its scheme, as intended. If a user or password contains
    unencoded special characters, libpq may take a part of it for a host, a port or a database, and would show that part
    in error messages.
    """
    try:
        parts = conninfo_to_dict(f"postgresql://{rest}")
    except (psycopg.ProgrammingError, UnicodeError):
        return False
    authority, _, path = rest.partition("/")
    ports = str(parts.get("port") or "").split(",")
    return authority.count("@") <= 1 and "@" not in path.partition("?")[0] and all(_PORT.fullmatch(port) for port in ports)


_PORT = re.compile(r"([0-9]{1,5})?")
