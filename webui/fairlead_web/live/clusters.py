"""Reads the control APIs of other clusters: their pools and findings, as this process sees them.

Each cluster is queried with a separate token, from a file that only this process reads. Nobody's session is passed on,
and no token reaches a browser. A slow or unreachable cluster delays nothing, because a request waits at most
`PATIENCE_SECONDS` for all clusters together; then the last known state is shown with its time. Requests within
`FRESH_SECONDS` share one query. Responses are not trusted. A response that is too large, or has a value that no version
of Fairlead writes, is reported as a trouble, and nothing of it is shown.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fairlead.errors import InvalidInput
from fairlead.plausibility import MOST_COUNT
from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem, ClientError
from fairlead_client.resources.advice import Advice
from fairlead_client.resources.pages import Page
from fairlead_client.resources.pools import PoolSummary
from fairlead_process.environment import variable
from fairlead_process.kinds import Parsed, Text

PATIENCE_SECONDS = 2.0
FRESH_SECONDS = 5.0
MOST_POOLS = 100
"""Maximum number of pools that are read of each cluster."""
MOST_FINDINGS = 500
LARGEST_ANSWER = 2 * 1024 * 1024
"""Maximum number of bytes of one response of another cluster; a hundred pools have 0.2 MB."""
LONGEST_TEXT = 4096
"""Maximum number of characters of a text in a response of another cluster."""
_YEARS = range(1970, 9999)
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_WANTED = "write names and addresses such as berlin=https://fairlead.berlin.example.com, separated by commas"
UNSIGNED = "there is no token for it here"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Another cluster: its name on the page of clusters, the address at which people open its pages, and the address of
    its API.
    """

    name: str
    url: str
    api: str


def read_clusters(text: str) -> tuple[ClusterAddress, ...]:
    """Parse a list of clusters: `name=address,…`. If a cluster's API has another address than its pages, that address
    follows after a space. Raises InvalidInput, which shows no password.
    """
    found: dict[str, ClusterAddress] = {}
    for part in text.split(","):
        name, sign, written = (one.strip() for one in part.partition("="))
        addresses = [one.rstrip("/") for one in written.split()]
        if not sign or not _NAME.fullmatch(name):
            raise InvalidInput("clusters", name, f"{_WANTED}; a name has lower-case letters, digits and dashes")
        if name in found:
            raise InvalidInput("clusters", name, "write each name once")
        if not 1 <= len(addresses) <= 2 or not all(map(_is_address, addresses)):
            raise InvalidInput("clusters", name, f"its address cannot be used; {_WANTED}, without user, query and fragment")
        found[name] = ClusterAddress(name=name, url=addresses[0], api=addresses[-1])
    return tuple(found.values())


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        found = parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment or "@" in parts.netloc)
    return bool(found) and plain and parts.scheme in {"http", "https"} and url.isprintable()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The clusters that the page of clusters shows; if there are none, the page does not exist."""

    clusters: tuple[ClusterAddress, ...] = field(
        default=(),
        metadata=variable(
            "FAIRLEAD_CLUSTERS",
            Parsed(parser=read_clusters, wanted=_WANTED, unit="name=URL with commas"),
            "control planes of other clusters that the page Clusters shows, each with the address at which people open it, and "
            "after a space the address of its API if it differs",
            "without it there is no such page; docs/monitoring.md",
            default_shown="none",
        ),
    )
    tokens_dir: str | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_CLUSTER_TOKENS_DIR",
            Text("the path of a directory", "directory"),
            "directory with a file per cluster, named like the cluster, with a token of role viewer; read each time, so it can be replaced",
            "for a cluster without a file, the page shows only the link",
            default_shown="none",
        ),
    )


NO_CLUSTERS = ClusterSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The known facts about a cluster: its pools, which were read at the time `at` (None: never read), and the present
    `trouble` (empty: no trouble).

    `advice` is None if the cluster's findings could not be read. `more` is True if the cluster has more pools than were
    read.
    """

    name: str
    url: str
    pools: tuple[PoolSummary, ...] = ()
    advice: tuple[Advice, ...] | None = None
    at: datetime | None = None
    more: bool = False
    trouble: str = ""


CONNECT = partial(ControlApi, largest=LARGEST_ANSWER)


class Clusters:
    """Reads the clusters in the settings; `connect` makes an API client for an address."""

    def __init__(self, settings: ClusterSettings, clock: Callable[[], datetime], connect: Callable[[str], ControlApi] = CONNECT) -> None:
        tokens = None if settings.tokens_dir is None else Path(settings.tokens_dir)
        self.addresses = settings.clusters
        self._seen = [_Cluster(one, None if tokens is None else tokens / one.name, clock, connect(one.api)) for one in settings.clusters]

    def __bool__(self) -> bool:
        return bool(self._seen)

    async def look(self) -> list[ClusterView]:
        """Return the known facts about all clusters, in the order of the settings, after at most `PATIENCE_SECONDS`."""
        asked = [one.asking() for one in self._seen]
        if asked:
            await asyncio.wait(asked, timeout=PATIENCE_SECONDS)
        return [one.view() for one in self._seen]

    async def close(self) -> None:
        """Cancel queries in progress, and close the connections."""
        for one in self._seen:
            await one.close()


class _Cluster:
    def __init__(self, address: ClusterAddress, token: Path | None, clock: Callable[[], datetime], api: ControlApi) -> None:
        self._token = token
        self._clock = clock
        self._api = api
        self._view = ClusterView(name=address.name, url=address.url)
        self._trouble = ""
        self._asked_at: datetime | None = None
        self._task: asyncio.Task[None] | None = None

    def asking(self) -> "asyncio.Task[None]":
        """Return the task of the query that is in progress or has recently begun; if there is none, start a
        new query.
        """
        now = self._clock()
        old = self._asked_at is None or (now - self._asked_at).total_seconds() >= FRESH_SECONDS
        if self._task is None or (self._task.done() and old):
            self._asked_at = now
            self._task = asyncio.create_task(self._ask())
        return self._task

    def view(self) -> ClusterView:
        """Return the known facts about the cluster. A query that has not been answered yet is shown as a trouble."""
        waits = self._task is not None and not self._task.done()
        trouble = f"it has not answered within {PATIENCE_SECONDS:g} s" if waits else self._trouble
        return replace(self._view, trouble=trouble)

    async def _ask(self) -> None:
        try:
            api = self._api.with_token(await asyncio.to_thread(self._read_token))
            pools, advice = await asyncio.gather(_pools(api), _findings(api))
        except _NotAsked as error:
            self._trouble = str(error)
        except ClientError as error:
            self._trouble = in_words(error)
        else:
            self._trouble = ""
            more = pools.next_cursor is not None or len(pools.items) > MOST_POOLS
            shown = tuple(pools.items[:MOST_POOLS])
            self._view = replace(self._view, pools=shown, advice=advice, at=self._clock(), more=more)

    def _read_token(self) -> str:
        if self._token is None or not self._token.is_file():
            raise _NotAsked(UNSIGNED)
        with suppress(OSError, UnicodeDecodeError):
            token = self._token.read_text("utf-8").strip()
            if token and token.isascii() and token.isprintable() and " " not in token:
                return token
        raise _NotAsked("the file for its token contains no usable token")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._api.close()


class _NotAsked(Exception):
    """A cluster cannot be queried, or its response cannot be used; the message gives the reason."""


async def _pools(api: ControlApi) -> Page[PoolSummary]:
    """Return the cluster's pools. Raises ClientError; _NotAsked for values that cannot be shown."""
    found = await api.pools(limit=MOST_POOLS)
    if (name := odd(found.items[:MOST_POOLS])) is not None:
        raise _NotAsked(f"a pool in its answer has an impossible {name}; is it a control plane of Fairlead?")
    return found


async def _findings(api: ControlApi) -> tuple[Advice, ...] | None:
    """Return the cluster's findings; None if the token may not read them, or if this version cannot read or
    show them.
    """
    try:
        found = tuple((await api.advice()).items[:MOST_FINDINGS])
    except ClientError:
        return None
    return found if odd(found) is None else None


def odd(value: Any, name: str = "value") -> str | None:
    """Return the name of a field, anywhere in the response, with a value that no version of Fairlead writes: a number
    that is not finite or too large, a time that is far from the present or has no zone, or a text that is too long.
    None if all values are plausible.
    """
    match value:
        case int() | float():
            return None if -MOST_COUNT <= value <= MOST_COUNT else name
        case str():
            return None if len(value) <= LONGEST_TEXT else name
        case datetime():
            return None if value.tzinfo is not None and value.year in _YEARS else name
    return next((found for below, inner in _parts(value, name) if (found := odd(inner, below)) is not None), None)


def _parts(value: Any, name: str) -> list[tuple[str, Any]]:
    """Return the values directly inside a value, each with the name of its field."""
    if is_dataclass(value):
        return [(one.name, getattr(value, one.name)) for one in fields(value)]
    if isinstance(value, Mapping):
        return [(name, one) for pair in value.items() for one in pair]
    return [(name, one) for one in value] if isinstance(value, list | tuple) else []


def in_words(error: ClientError) -> str:
    """Return the reason why a cluster could not be read, in words. The words contain no text from the cluster's
    response, which may contain anything.
    """
    if not isinstance(error, ApiProblem):
        return str(error)
    status = error.problem.status
    if status in {401, 403}:
        return f"it refuses the token ({status}); give a token of role viewer in all namespaces"
    return "it has no such list: it has an older version, or is not Fairlead" if status == 404 else f"it answers {status}"
