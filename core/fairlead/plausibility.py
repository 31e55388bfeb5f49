"""The bounds of everything that an engine may plausibly report, in one place.

Engines are trusted with the prompts that they compute, not with numbers, names or sizes. A value beyond a bound is
ignored, the other values are used, and the pool's condition reports the fault (`EngineTrouble.REPORTS_IMPLAUSIBLE`).
The bounds are far above the values of any engine today. They exclude values that would use up a router's memory, files
or time, or that cannot be written in JSON.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from math import isfinite
from typing import NamedTuple

MOST_INTEGER = 2**53
"""The largest integer that may be sent in JSON; readers may round larger integers."""

# ── an engine as a whole ──

MOST_RANKS = 1024
"""Maximum number of data-parallel ranks of one engine."""
MOST_RANK_NAME = 65_535
"""Largest index of a data-parallel rank. The ranks of one engine need not begin at 0, because an engine may run on one
of several nodes.
"""
MOST_MODELS = 4096
"""Maximum number of models and adapters of one engine."""
LONGEST_NAME = 512
"""Maximum number of characters of a model's name, or of an id."""

# ── its metrics ──

MOST_REQUESTS = 1_000_000
"""Maximum number of requests that run or wait in one engine."""
LEAST_CACHE_TOKENS, MOST_CACHE_TOKENS = 256, 2**32
"""Least and largest number of tokens of one rank's KV cache."""
MOST_BLOCKS = 2**32
MOST_COUNT = 1e15
"""Largest value of anything that an engine counts over its lifetime: tokens, steps, bytes."""

# ── its answers ──

MOST_TOKENS = 2**24
"""Maximum number of tokens of one prompt or answer: more than any model's context holds."""
HEAD_BYTES = 64 * 1024
"""Maximum number of bytes of a response's head, including the heads of all interim responses (1xx) before it. The same
limit holds for the trailers after the response, and for the bytes between two pieces of its body (sizes and extensions
of chunks).
"""
MOST_HEADERS = 256
MOST_INTERIM = 16
"""Maximum number of interim responses (1xx) before the response."""
HANDOVER_BYTES = 1024 * 1024
"""Maximum size of `kv_transfer_params`: a prompt of a million tokens has 65,536 blocks of 16."""
HANDOVER_LEVELS = 16
PREFILL_BYTES = 4 * 1024 * 1024
"""Maximum number of bytes of a response with one output token. The response contains the prompt's token ids if the
client requested them.
"""

# ── its KV events ──

MOST_SOURCES = 64
"""Maximum number of an engine's sources of KV events; an engine has one source for each data-parallel rank."""
LONGEST_TOPIC = 1024
MOST_BLOCK_TOKENS = 65_536
LONGEST_HASH = 64
"""Maximum number of bytes of a block's hash: the size of SHA-512."""
MOST_GROUPS = 64
"""Maximum number of groups of layers whose KV blocks are separate."""
LONGEST_WORD = 64
"""Maximum number of characters of the name of a tier, or of a group's kind."""
MESSAGE_BYTES = 4 * 1024 * 1024
"""Maximum size of one message of KV events. It is enough for 800,000 tokens in one step of the engine."""
MOST_SECONDS = 1e12
"""Largest plausible time in Unix seconds by an engine's clock, which may be very wrong."""

# ── the pages that are asked of it ──

METRICS_BYTES = 4 * 1024 * 1024
"""Maximum size of an engine's metrics page. vLLM's page of 64 ranks has about 2.3 MB."""
PAGE_BYTES = 1024 * 1024
"""Maximum size of an engine's lists of models and of sources of KV events."""
PAGE_LEVELS = 64


class Bound(NamedTuple):
    """The least and the largest plausible value, both included, and the quantity that they bound."""

    least: float
    most: float
    what: str

    def holds(self, value: float) -> bool:
        """Return whether the value is plausible. A value that is not a number is not plausible."""
        return self.least <= value <= self.most

    def words(self, name: str, value: float) -> str:
        """Return a sentence that says why a value is implausible."""
        return f"{name} is {value:.6g}, and {self.what} are {self.least:g} to {self.most:g}"


REQUESTS = Bound(0, MOST_REQUESTS, "an engine's requests")
CACHE_TOKENS = Bound(LEAST_CACHE_TOKENS, MOST_CACHE_TOKENS, "tokens of a KV cache")
BLOCKS = Bound(1, MOST_BLOCKS, "blocks of a KV cache")
BLOCK_TOKENS = Bound(1, MOST_BLOCK_TOKENS, "tokens of a block")
COUNT = Bound(0, MOST_COUNT, "counts")
KV_BYTES_PER_TOKEN = Bound(1, 2**26, "bytes of a token's KV blocks")
RANK = Bound(0, MOST_RANK_NAME, "names of data-parallel ranks")
PORT = Bound(1, 65_535, "ports")

_UNSEEN = re.compile(r"[^\x20-\x7e\xa1-\ud7ff\ue000-\U0010ffff]")


def shown(text: str, longest: int = 100) -> str:
    """Return an engine's text in a form that may be passed on: at most `longest` characters, on one line, and valid
    UTF-8.
    """
    return _UNSEEN.sub("?", text[:longest])


def is_time(stamp: float) -> bool:
    """Return whether this number can be a time in Unix seconds, even by a clock that is wrong."""
    return isfinite(stamp) and -MOST_SECONDS <= stamp <= MOST_SECONDS


class Hosts:
    """The hosts, besides its own, that an engine may give in an address: names, name suffixes with `*.`, addresses and
    networks. Raises ValueError for an entry of any other form.
    """

    def __init__(self, words: Sequence[str] = ()) -> None:
        self._networks = tuple(ip_network(word) for word in words if "/" in word or _is_address(word))
        names = [word.lower() for word in words if not ("/" in word or _is_address(word))]
        for name in names:
            if not _NAME.fullmatch(name):
                raise ValueError(name)
        self._names = frozenset(name for name in names if not name.startswith("*."))
        self._ends = tuple(name[1:] for name in names if name.startswith("*."))

    def allow(self, host: str) -> bool:
        """Return whether an engine may give this host in an address."""
        host = host.strip("[]").lower()
        if _is_address(host):
            return any(_contains(network, host) for network in self._networks)
        return host in self._names or host.endswith(self._ends)


_NAME = re.compile(r"(?:\*\.)?[a-z0-9]([a-z0-9._-]*[a-z0-9])?")


def _is_address(word: str) -> bool:
    try:
        ip_address(word)
    except ValueError:
        return False
    return True


def _contains(network: IPv4Network | IPv6Network, host: str) -> bool:
    address = ip_address(host)
    return address.version == network.version and address in network
