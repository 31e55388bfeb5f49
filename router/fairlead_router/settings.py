"""The router's settings, read from the environment once; docs/settings.md is generated from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairlead.errors import InvalidInput
from fairlead.plausibility import Hosts
from fairlead.tables import PoolKey
from fairlead_process.environment import group, read, variable
from fairlead_process.kinds import PORT, Address, File, Number, Parsed, Switch, Text, Whole
from fairlead_process.logs import LogSettings
from fairlead_process.shared_variables import API_URLS

MEBIBYTE = 1024 * 1024
SHORTEST_KEY = 16
EVERY_ADDRESS = ("0.0.0.0", "::", "*")  # noqa: S104 - it is refused

_SECONDS = Number("seconds", above=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts in seconds."""

    connect: float = field(
        default=2.0,
        metadata=variable(
            "FAIRLEAD_CONNECT_TIMEOUT_SECONDS",
            _SECONDS,
            "connecting to an engine (`unreachable`)",
            "an engine that takes longer is skipped",
        ),
    )
    first_byte: float = field(
        default=300.0,
        metadata=variable(
            "FAIRLEAD_FIRST_BYTE_TIMEOUT_SECONDS",
            _SECONDS,
            "for each attempt at a streamed request: from sending the request to an engine until the answer begins (`timeout`). A request that"
            " is not streamed may take the total time, unless its engine sends nothing for this long, not even metrics (30 s if it has"
            " served metrics before)",
            "a value shorter than a long prefill fails requests that would have been answered",
        ),
    )
    idle: float = field(
        default=300.0,
        metadata=variable(
            "FAIRLEAD_IDLE_TIMEOUT_SECONDS",
            _SECONDS,
            "from one piece of an answer to the next (`stalled`), if the engine serves no metrics, or its metrics show no running"
            " request; an engine whose metrics show no progress is given up sooner",
            "an answer that is silent longer is ended",
        ),
    )
    total: float = field(
        default=1800.0,
        metadata=variable(
            "FAIRLEAD_TOTAL_TIMEOUT_SECONDS", _SECONDS, "a whole request, over all attempts (`deadline`)", "longer answers are cut off"
        ),
    )
    body: float = field(
        default=60.0,
        metadata=variable("FAIRLEAD_BODY_TIMEOUT_SECONDS", _SECONDS, "until a request's body has arrived", "slower clients get 408"),
    )
    header: float = field(
        default=10.0,
        metadata=variable(
            "FAIRLEAD_HEADER_TIMEOUT_SECONDS", _SECONDS, "from a request's first byte to the end of its headers", "slower clients get 408"
        ),
    )
    keep_alive: float = field(
        default=75.0,
        metadata=variable(
            "FAIRLEAD_KEEP_ALIVE_SECONDS",
            _SECONDS,
            "a client's connection without a request, or with an answer that the client does not read",
            "then it is closed",
        ),
    )
    shutdown: float = field(
        default=30.0,
        metadata=variable(
            "FAIRLEAD_SHUTDOWN_SECONDS",
            _SECONDS,
            "for requests in progress when the router must stop",
            "requests still queued after half of it are refused; requests not answered at its end are cut off",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The settings that determine how a process divides its files and its memory (`fairlead_router.limits`)."""

    max_body_bytes: int = field(
        default=32 * MEBIBYTE,
        metadata=variable("FAIRLEAD_MAX_BODY_BYTES", Whole("bytes", 1024), "a JSON body, decoded", "larger ones get 413"),
    )
    max_upload_bytes: int = field(
        default=32 * MEBIBYTE,
        metadata=variable("FAIRLEAD_MAX_UPLOAD_BYTES", Whole("bytes", 1024), "a form, decoded", "larger ones get 413"),
    )
    body_memory_bytes: int | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_BODY_MEMORY_BYTES",
            Whole("bytes", 1024),
            "memory for the bodies of all requests in progress, including waiting requests and unread answers; at least the largest allowed body",
            "requests beyond it get 503 with Retry-After; one API key may use half of it. The process takes half as much again, and the memory in the line"
            " `limits` of its log",
            default_shown="a quarter of the memory of the container or machine, less where the rest is not enough, and at least two of the"
            " largest bodies",
        ),
    )
    kept_prompts_bytes: int = field(
        default=64 * MEBIBYTE,
        metadata=variable(
            "FAIRLEAD_KEPT_PROMPTS_BYTES",
            Whole("bytes", 0),
            "the last prompts of sessions, kept in memory to be computed elsewhere when their instance leaves (`handOverBudget`)",
            "beyond it the least recently used prompts are dropped; their sessions are computed again with their next turn",
        ),
    )
    max_header_bytes: int = field(
        default=64 * 1024,
        metadata=variable("FAIRLEAD_MAX_HEADER_BYTES", Whole("bytes", 1024), "request line and headers", "larger ones get 431"),
    )
    max_connections: int = field(
        default=8192,
        metadata=variable(
            "FAIRLEAD_MAX_CONNECTIONS",
            Whole("connections", 1),
            "clients' connections; fewer where the limit of open files does not allow two for each",
            "further ones get 503",
        ),
    )
    kv_events_port: int | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_KV_EVENTS_PORT",
            Whole("port", 1, 65535),
            "port of every address at which engines connect to publish KV events, by ZMQ",
            "without it only engines that bind an endpoint are followed; docs/kv-events.md",
            default_shown="none",
        ),
    )
    kv_event_sources: int = field(
        default=1024,
        metadata=variable(
            "FAIRLEAD_KV_EVENT_SOURCES",
            Whole("sources", 1),
            "maximum number of sources of KV events (one for each data-parallel rank of an engine) that a process follows; each takes up to four files;"
            " where files are short, all sources together get a sixteenth",
            "for engines beyond it the router uses its own history",
        ),
    )
    picker_port: int | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_PICKER_PORT",
            Whole("port", 1, 65535),
            "port of the endpoint picker (Envoy's ext_proc, at the host of `--host`), for gateways that send requests themselves",
            "without it the router has no endpoint picker; docs/endpoint-picker.md",
            default_shown="none",
        ),
    )
    picker_health_port: int | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_PICKER_HEALTH_PORT",
            Whole("port", 1, 65535),
            "a second port with gRPC health checks only, never with TLS, for probes",
            "without it health is checked at the picker's own port",
            default_shown="none",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings(Sizes):
    """All settings of the router's process. Sizes are in bytes."""

    api_urls: tuple[str, ...] = field(metadata=API_URLS)
    api_token: str = field(
        repr=False,
        metadata=variable(
            "FAIRLEAD_API_TOKEN", Text("a token of role system-router", "token", secret=True), "token of role `system-router`"
        ),
    )
    router_id: str = field(
        metadata=variable(
            "FAIRLEAD_ROUTER_ID",
            Text("a name that stays the same over restarts, such as router-0", "name"),
            "the router's name in reports, decisions and metrics",
            "a new name is a new router; the token must be valid for it",
        )
    )
    spool_dir: Path = field(
        metadata=variable(
            "FAIRLEAD_SPOOL_DIR",
            Parsed(lambda text: _folder(text), "a directory this process may write to", "directory"),
            "where unsent reports and the last tables are kept",
            "if its files are lost, a restarted router loses its unsent reports",
        )
    )
    routers_dir: Path | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_ROUTERS_DIR",
            Parsed(lambda text: _folder(text), "a directory this process may write to", "directory"),
            "routers of one machine that share this folder find each other, and one of them decides for each pool",
            "without it each router decides from its own requests only",
            default_shown="none",
        ),
    )
    ask_host: str | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_ROUTER_ASK_HOST",
            Parsed(lambda text: _own_address(text), "an address of this machine that other routers reach, such as 10.0.0.7", "IP or name"),
            "address at which this router listens for routers of other machines, which get the address from the control API; one router decides for each pool",
            "without it only routers that share FAIRLEAD_ROUTERS_DIR ask each other",
            default_shown="none",
        ),
    )
    ask_port: int = field(
        default=0,
        metadata=variable(
            "FAIRLEAD_ROUTER_ASK_PORT", PORT, "the port of FAIRLEAD_ROUTER_ASK_HOST; 0 takes a free one", "let other routers reach it"
        ),
    )
    spool_max_bytes: int = field(
        default=64 * MEBIBYTE,
        metadata=variable(
            "FAIRLEAD_SPOOL_MAX_BYTES",
            Whole("bytes", 64 * 1024),
            "unsent reports kept on disk",
            "if there are more, samples are deleted first, then history, each from the oldest",
        ),
    )
    cors_origins: tuple[str, ...] = field(
        default=(),
        metadata=variable(
            "FAIRLEAD_CORS_ORIGINS",
            Parsed(lambda text: _origins(text), "`*`, or origins as https://chat.example.com, with commas between them", "origins"),
            "web pages that may call the gateway from a browser, by their origin; `*` is every page",
            "without it browsers refuse pages of other origins; with `*` and no API keys, every page that somebody opens can use the engines",
            default_shown="none",
        ),
    )
    max_retries: int = field(
        default=2,
        metadata=variable(
            "FAIRLEAD_MAX_RETRIES",
            Whole("retries"),
            "number of other instances that are tried if one fails before its answer has content; instances that refuse the connection do not count",
            "more = fewer 502, and more load on the other instances of a failing pool",
        ),
    )
    gateway_keys_required: bool = field(
        default=False,
        metadata=variable(
            "FAIRLEAD_GATEWAY_KEYS_REQUIRED",
            Switch(),
            "whether clients must send an API key: a key made with `fairlead keys create`, or a key from FAIRLEAD_GATEWAY_KEYS",
            "with 0, anybody who reaches the port may use every pool; if a client sends a key, the limits of the key still apply",
        ),
    )
    gateway_keys: tuple[str, ...] = field(
        default=(),
        repr=False,
        metadata=variable(
            "FAIRLEAD_GATEWAY_KEYS",
            Parsed(lambda text: _keys(text.split(",")), f"API keys of at least {SHORTEST_KEY} characters", "keys with commas", secret=True),
            "API keys that give access to every pool without limits, for first trials; if a key is set, keys are required",
            "no list shows them, and only a restart removes them",
            default_shown="none",
        ),
    )
    gateway_keys_file: tuple[str, ...] = field(
        default=(),
        repr=False,
        metadata=variable(
            "FAIRLEAD_GATEWAY_KEYS_FILE",
            Parsed(lambda text: _keys_of_file(text), "the path of a file with a key a line", "path"),
            "a file with further keys of the same kind as FAIRLEAD_GATEWAY_KEYS, one on each line; `#` begins a comment",
            "read only when the process starts",
            default_shown="none",
        ),
    )
    trusts_priority_headers: bool = field(
        default=True,
        metadata=variable(
            "FAIRLEAD_TRUST_PRIORITY_HEADERS",
            Switch(),
            "whether a client without an API key may ask for any priority class of a pool (`x-llm-d-inference-objective`), and name the tenant of its "
            "request (`x-llm-d-inference-fairness-id`)",
            "with 0, such a client gets the class `default` or a lower one, and all such clients are one tenant; set 0 if clients reach the port "
            "directly",
        ),
    )
    explains_without_key: bool = field(
        default=True,
        metadata=variable(
            "FAIRLEAD_EXPLAIN_WITHOUT_KEY",
            Switch(),
            "whether a client without an API key may have the decision of its request kept (`x-fairlead-explain: 1`)",
            "at most 10 a second in a pool are kept this way; for a client with a key, the key decides",
        ),
    )
    kv_event_hosts: Hosts = field(
        default_factory=Hosts,
        metadata=variable(
            "FAIRLEAD_KV_EVENT_HOSTS",
            Parsed(lambda text: _event_hosts(text), "names, `*.` with the end of a name, addresses or networks, with commas", "hosts"),
            "hosts at which an engine may publish its KV events, in addition to its own host, such as `*.engines.svc` or `10.0.0.0/8`",
            "routers connect to the endpoints at these hosts that engines report",
            default_shown="none",
        ),
    )
    picker_pool: str | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_PICKER_POOL",
            Parsed(lambda text: str(PoolKey.parse(text)), "a pool as namespace/name", "namespace/name"),
            "the only pool that the endpoint picker picks from",
            "without it the pool is found by the called Service, the header `x-fairlead-pool` or the model",
            default_shown="none",
        ),
    )
    picker_fallbacks: int = field(
        default=2,
        metadata=variable(
            "FAIRLEAD_PICKER_FALLBACKS",
            Whole("instances"),
            "instances that the endpoint picker names after the chosen one, for the gateway to try when that one fails",
            "0 for gateways that take one address only (docs/gateway-api.md)",
        ),
    )
    picker_scores: bool = field(
        default=False,
        metadata=variable(
            "FAIRLEAD_PICKER_SCORES",
            Switch(),
            "whether the endpoint picker also sends the gateway the best endpoints' scores, from 0 to 1, as metadata",
            "the metadata grow by 30 to 40 bytes for each compared endpoint (docs/endpoint-picker.md)",
        ),
    )
    picker_any_path: bool = field(
        default=False,
        metadata=variable(
            "FAIRLEAD_PICKER_ANY_PATH",
            Switch(),
            "whether the endpoint picker also picks for paths that the gateway does not know",
            "with 1, only the routes of the gateway in front of it prevent clients from reaching the engines' administration",
        ),
    )
    picker_tls_cert_file: Path | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_PICKER_TLS_CERT_FILE",
            File(),
            "certificate chain in PEM, for TLS at the endpoint picker's port; read again within a minute after a change",
            "without it gateways must be configured for plain HTTP/2",
            default_shown="none",
        ),
    )
    picker_tls_key_file: Path | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_PICKER_TLS_KEY_FILE",
            File(),
            "private key in PEM of FAIRLEAD_PICKER_TLS_CERT_FILE",
            "required if the certificate is set",
            default_shown="none",
        ),
    )
    decision_sample_rate: float = field(
        default=0.05,
        metadata=variable(
            "FAIRLEAD_DECISION_SAMPLE_RATE",
            Number("", 0, 1),
            "share of routing decisions that are kept for requests without a problem",
            "more = more explanations, and about 1.1 GB of database for each million; decisions of late, refused, failed, retried and moved requests "
            "are always kept, up to 10 a second in a pool",
        ),
    )
    recorded_traffic: float = field(
        default=1.0,
        metadata=variable(
            "FAIRLEAD_RECORD_TRAFFIC",
            Number("", 0, 1),
            "share of sessions whose requests are recorded, for simulations and session trees: arrivals, lengths, hashes of prompt blocks; no text",
            "1 writes a row for every request; with 0, simulations have only uploaded traces, and there are no tasks and trees",
        ),
    )
    otlp_endpoint: str | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_OTLP_ENDPOINT",
            Address("http://otel-collector:4318"),
            "the OpenTelemetry collector that gets traces of the requests whose decisions are kept, by OTLP over HTTP",
            "without it no traces are made, and `traceparent` is only passed on; docs/tracing.md",
            default_shown="none",
        ),
    )
    timeouts: Timeouts = field(default_factory=Timeouts, metadata=group(Timeouts))
    logs: LogSettings = field(default_factory=LogSettings, metadata=group(LogSettings))


def read_settings(environment: Mapping[str, str]) -> RouterSettings:
    """Return the settings from environment variables. `gateway_keys` has the keys from both variables for keys.

    Raises InvalidInput for a missing or invalid variable.
    """
    settings = read(RouterSettings, environment)
    if (settings.picker_tls_cert_file is None) != (settings.picker_tls_key_file is None):
        given = settings.picker_tls_cert_file or settings.picker_tls_key_file
        raise InvalidInput("FAIRLEAD_PICKER_TLS_CERT_FILE, FAIRLEAD_PICKER_TLS_KEY_FILE", str(given), "set both or neither")
    largest = max(settings.max_body_bytes, settings.max_upload_bytes)
    if settings.body_memory_bytes is not None and settings.body_memory_bytes < largest:
        remedy = f"allow at least one body of the largest size, {largest} (FAIRLEAD_MAX_BODY_BYTES, FAIRLEAD_MAX_UPLOAD_BYTES)"
        raise InvalidInput("FAIRLEAD_BODY_MEMORY_BYTES", str(settings.body_memory_bytes), remedy)
    return replace(settings, gateway_keys=settings.gateway_keys + settings.gateway_keys_file)


def _own_address(text: str) -> str:
    if text in EVERY_ADDRESS:
        raise InvalidInput("", text, "write one address of this machine that other routers reach, such as 10.0.0.7: they connect to it")
    return text


def _event_hosts(text: str) -> Hosts:
    """Return the hosts in the value of a setting. Raises ValueError."""
    return Hosts([word.strip() for word in text.split(",") if word.strip()])


def _origins(text: str) -> tuple[str, ...]:
    """Return the origins in the value of a setting, which are separated by commas: `*`, `null` (pages of files) or
    scheme://host[:port]. Raises ValueError.
    """
    origins = tuple(word.strip().lower() for word in text.split(",") if word.strip())
    for origin in origins:
        scheme, separator, host = origin.partition("://")
        named = bool(separator and scheme and host) and not set(host) & set("/?#@ \t") and origin.isascii() and origin.isprintable()
        if origin not in ("*", "null") and not named:
            raise ValueError(origin)
    return origins


def _folder(text: str) -> Path:
    try:
        Path(text).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput("", text, f"write a directory this process may write to ({error.strerror})") from None
    return Path(text)


def _keys(words: list[str]) -> tuple[str, ...]:
    keys = tuple(word.strip() for word in words if word.strip())
    for key in keys:
        if len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
            shown = f"a key of {len(key)} characters"  # never the key itself: this is printed
            raise InvalidInput("", shown, f"write keys of at least {SHORTEST_KEY} printable ASCII characters without spaces")
    return keys


def _keys_of_file(path: str) -> tuple[str, ...]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput("", path, f"write the path of a file this process can read ({reason})") from None
    keys = _keys([line.partition("#")[0] for line in lines])
    if not keys:
        raise InvalidInput("", path, "put at least one key into it, or unset the variable to allow requests without a key")
    return keys
