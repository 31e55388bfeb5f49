"""Probes engines: whether they respond and serve the model. Also reads, once, their reports about themselves.

The paths are vLLM's, which simulated engines have too. An SGLang server is recognised by its list of models, and probed
at its own paths. An engine without `/health` (404) counts as healthy if it lists its models.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec

from fairlead.tables import KV_USAGE_METRICS
from fairlead_client.http_clients import BoundedClient, NotReadable, decoded
from fairlead_client.tls import client_context
from fairlead_router.engines.engine_pages import PageUnreadable, ToldModels, read_models, read_page
from fairlead_router.kv_events.sources import EventSource, SourcesUnreadable, read_sources, sources_path
from fairlead_serve.engine_states import NO_ANSWER, UNASKED, Health

PROBE_SECONDS = 1.0
"""Seconds between two probes of one engine."""
LARGEST_PAGE = 4 * 1024 * 1024
"""Maximum number of bytes of one answer of an engine."""
TIMEOUT_SECONDS = 5.0
"""Timeout of a probe in seconds; generous, because an engine that tokenises a long prompt delays its health check."""
FAILURES = 3
"""Number of consecutive failed probes after which an engine leaves the routing table."""
MODELS_SECONDS = 30.0
"""Seconds between two queries of a healthy engine's list of models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFindings:
    """The report of an engine about itself. Missing values are None or (). `problem` is the reason why the engine is
    not healthy or lists no models; None without a problem.
    """

    url: str
    models: tuple[str, ...] = ()
    engine_type: str = "vllm"
    version: str | None = None
    kv_cache_tokens: int | None = None
    sources: tuple[EventSource, ...] = ()
    problem: str | None = None


def keyless_words(pool_file: Path) -> str:
    """Return the message for the case that engines respond but list their models only to clients with an API key. It
    asks for the model in `pool_file`.
    """
    return f"no engine lists its model without an API key: write `model` into {pool_file}"


class _Version(msgspec.Struct):
    version: str | None = None


class Prober:
    """Sends probes and queries to engines by one HTTP client."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        limits = httpx.Limits(max_keepalive_connections=256, max_connections=None)
        timeout = httpx.Timeout(TIMEOUT_SECONDS)
        self._http = BoundedClient(LARGEST_PAGE, timeout=timeout, transport=transport, limits=limits, verify=client_context())

    async def close(self) -> None:
        await self._http.aclose()

    async def health(self, url: str) -> Health:
        """Return the health that the engine's health check shows, with the reason if the check fails."""
        try:
            answer = await self._http.get(f"{url}/health")
        except httpx.HTTPError as error:
            reason, words = _failure(error)
            return Health(ready=False, reason=reason, words=words)
        if answer.status_code == 404 or answer.is_success:
            return Health(ready=True)
        return Health(ready=False, reason="Unhealthy", words=f"/health answers {answer.status_code}")

    async def models(self, url: str) -> ToldModels | None:
        """Return the models that an engine lists. The result has no names if the list needs an API key; it is None if
        there is no list.
        """
        try:
            answer = await self._http.get(f"{url}/v1/models")
            if answer.status_code in {401, 403}:
                return ToldModels(names=())
            told = read_models(answer.content) if answer.is_success else None
        except (httpx.HTTPError, PageUnreadable):
            return None
        return told if told is not None and told.names else None  # an empty list asks for no key

    async def findings(self, url: str) -> EngineFindings:
        """Return everything that the engine reports about itself."""
        health = await self.health(url)
        if not health.ready:
            return EngineFindings(url=url, problem=health.words)
        models = await self.models(url)
        kind = "vllm" if models is None else models.engine_type
        version, page, sources = await asyncio.gather(
            self._page(f"{url}{_VERSION_PATHS[kind]}"), self._page(f"{url}/metrics"), self._page(f"{url}{sources_path(kind)}")
        )
        return EngineFindings(
            url=url,
            models=() if models is None else models.names,
            engine_type=kind,
            version=_version(version),
            kv_cache_tokens=None if page is None else read_page(page, kind, KV_USAGE_METRICS[kind]).kv_cache_tokens,
            sources=_sources(sources, kind, url),
            problem=None if models is not None else "it answers, but lists no models at /v1/models",
        )

    async def _page(self, url: str) -> bytes | None:
        try:
            answer = await self._http.get(url)
        except httpx.HTTPError:
            return None
        return answer.content if answer.is_success else None


@dataclass(slots=True)
class _Asked:
    """The state of probing one address. `failures`: the number of consecutive failed probes."""

    health: Health = UNASKED
    failures: int = 0
    models: ToldModels | None = None
    models_at: float = float("-inf")


class HealthWatch:
    """The health of a changing set of addresses. Each address has its own task for probes, so a slow engine delays no
    other.

    `changed` is set when an engine's health or its list of models has changed.
    """

    def __init__(self, prober: Prober, changed: asyncio.Event) -> None:
        self._prober = prober
        self._changed = changed
        self._asked: dict[str, _Asked] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def watch(self, addresses: Iterable[str]) -> None:
        """Probe these addresses (host:port) from now on, and no others."""
        wanted = set(addresses)
        for address in self._tasks.keys() - wanted:
            self._tasks.pop(address).cancel()
            self._asked.pop(address, None)
        for address in wanted - self._tasks.keys():
            self._asked[address] = _Asked()
            self._tasks[address] = asyncio.create_task(self._keep_asking(address), name=f"health of {address}")

    def health(self, address: str, model: str) -> Health:
        """Return the health of an engine that must serve this model; an empty name accepts any model."""
        asked = self._asked.get(address)
        if asked is None:
            return UNASKED
        names = () if asked.models is None else asked.models.names
        if asked.health.ready and model and names and model not in names:
            return Health(ready=False, reason="ModelNotServed", words=f"it serves {', '.join(names)}, not {model}")
        return asked.health

    @property
    def models(self) -> Mapping[str, ToldModels]:
        """The models of each address where an engine listed its models."""
        return {address: asked.models for address, asked in self._asked.items() if asked.models is not None and asked.models.names}

    async def close(self) -> None:
        tasks = tuple(self._tasks.values())
        self.watch(())
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_asking(self, address: str) -> None:
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            asked, url = self._asked[address], f"http://{address}"
            before = (asked.health, asked.models)
            found = await self._prober.health(url)
            if found.ready:
                if not asked.health.ready or asked.models is None or began - asked.models_at >= MODELS_SECONDS:
                    asked.models, asked.models_at = await self._prober.models(url) or asked.models, began
                asked.failures = 0
                asked.health = found if asked.models is not None else _WITHOUT_MODELS
            else:
                asked.failures += 1
                if asked.failures >= FAILURES or not asked.health.ready:
                    asked.health = found
            if before != (asked.health, asked.models):
                self._changed.set()
            await asyncio.sleep(max(0.0, began + PROBE_SECONDS - now()))


_VERSION_PATHS = {"vllm": "/version", "sglang": "/server_info"}
_WITHOUT_MODELS = Health(ready=False, reason="ModelsNotListed", words="it lists no models at /v1/models")


def _failure(error: httpx.HTTPError) -> tuple[str, str]:
    """Return the reason (one word) and a sentence for the error of a probe that got no response."""
    if isinstance(error, httpx.TimeoutException):
        return NO_ANSWER, f"it does not answer within {TIMEOUT_SECONDS:g} s"
    if isinstance(error, httpx.ConnectError):
        return "NoConnection", "it does not accept connections"
    return "ConnectionBroken", f"it drops the connection ({type(error).__name__})"


def _version(answer: bytes | None) -> str | None:
    try:
        return None if answer is None else decoded(answer, _Version).version
    except NotReadable:
        return None


def _sources(answer: bytes | None, engine_type: str, url: str) -> tuple[EventSource, ...]:
    try:
        return () if answer is None else read_sources(answer, engine_type, url.removeprefix("http://")).sources
    except SourcesUnreadable:
        return ()
