"""What can be true of an engine: the bounds of everything that an engine says, in this one place.

Engines are trusted with the prompts that they compute, not with numbers, names or sizes. What is beyond a bound is not
used, the rest is, and the pool's condition says so (`EngineTrouble.REPORTS_IMPLAUSIBLE`). Bounds are far above what any
engine has today: they hold back what would cost a router its memory, files or time, or would leave it as a number that
JSON cannot carry.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from math import isfinite
from typing import NamedTuple

MOST_INTEGER = 2**53
"""The largest whole number that leaves a process: the largest that JSON carries exactly."""

# ── an engine as a whole ──

MOST_RANKS = 1024
"""Data-parallel ranks of one engine."""
MOST_RANK_NAME = 65_535
"""An engine may name its ranks from another number than 0 on, as one of several nodes does."""
MOST_MODELS = 4096
"""Models and adapters of one engine."""
LONGEST_NAME = 512
"""Characters of a model's name, or of an id."""

# ── its metrics ──

MOST_REQUESTS = 1_000_000
"""Requests that run or wait in one engine."""
LEAST_CACHE_TOKENS, MOST_CACHE_TOKENS = 256, 2**32
"""Tokens of one rank's KV cache."""
MOST_BLOCKS = 2**32
MOST_COUNT = 1e15
"""Whatever an engine counts over its life: tokens, steps, bytes."""

# ── its answers ──

MOST_TOKENS = 2**24
"""Tokens of one prompt or answer: more than any model's context holds."""
HEAD_BYTES = 64 * 1024
"""The head of an answer, with all heads of interim answers (1xx) before it; also the trailers after it, and what stands
between two pieces of its body (sizes and extensions of chunks).
"""
MOST_HEADERS = 256
MOST_INTERIM = 16
"""Interim answers (1xx) before the answer."""
HANDOVER_BYTES = 1024 * 1024
"""`kv_transfer_params`: a prompt of a million tokens has 65,536 blocks of 16."""
HANDOVER_LEVELS = 16
PREFILL_BYTES = 4 * 1024 * 1024
"""An answer of one token, which has the prompt's token ids where its client asked for them."""

# ── its KV events ──

MOST_SOURCES = 64
"""Sources of KV events of one engine, one for each data-parallel rank."""
LONGEST_TOPIC = 1024
MOST_BLOCK_TOKENS = 65_536
LONGEST_HASH = 64
"""Bytes of a block's hash: SHA-512's."""
MOST_GROUPS = 64
"""Groups of layers with blocks of their own."""
LONGEST_WORD = 64
"""Characters of a tier's or group's kind."""
MESSAGE_BYTES = 4 * 1024 * 1024
"""One message: 800,000 tokens in one step of the engine."""
MOST_SECONDS = 1e12
"""Unix seconds of an engine's clock, however wrong."""

# ── the pages that are asked of it ──

METRICS_BYTES = 4 * 1024 * 1024
"""vLLM's page of 64 ranks has about 2.3 MB."""
PAGE_BYTES = 1024 * 1024
"""Its lists of models and of sources of KV events."""
PAGE_LEVELS = 64


class Bound(NamedTuple):
    """The least and the largest plausible value, both included, and what they are of."""

    least: float
    most: float
    what: str

    def holds(self, value: float) -> bool:
        """Whether the value can be true. Not so what is not a number."""
        return self.least <= value <= self.most

    def words(self, name: str, value: float) -> str:
        """What is wrong with a value that cannot be true, for a person."""
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
    """A text of an engine as others may get it: at most so long, on one line, and valid UTF-8."""
    return _UNSEEN.sub("?", text[:longest])


def is_time(stamp: float) -> bool:
    """Whether these may be Unix seconds by some clock."""
    return isfinite(stamp) and -MOST_SECONDS <= stamp <= MOST_SECONDS


class Hosts:
    """The hosts besides its own that an engine may name as places of its own: names, `*.` with the end of a name,
    addresses and networks. Raises ValueError for a word that is none of these.
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
        """Whether an engine may name this host."""
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
