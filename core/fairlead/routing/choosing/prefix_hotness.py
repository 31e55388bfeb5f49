"""The adaptive hash key of DualMap, section 1.2. Prompts with a hot prefix get longer keys, so that they spread over
more instances. The keys become short again when the prefix is cold.

A key is (depth, chained hash at that depth). A prefix starts at depth 1. When the share of recent requests with the
prefix exceeds the hot share, the keys of prompts with this prefix become one block longer. When the share falls below
the cold share, all extensions below the prefix are undone. Between the hot and the cold share nothing changes.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.routing.knowledge.rings import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class HotnessSettings:
    """Settings of the prefix-hotness tree. If `hot_share` is None, it is 2/n, where n is the number of accepting
    instances; if `cold_share` is None, it is 1/n.

    The window has `window` entries, and each request adds `entries_per_request` entries. Shares are shares of entries.
    A prefix is expanded only after the window has `min_samples` requests.
    """

    hot_share: float | None = None
    cold_share: float | None = None
    window: int = 200
    min_samples: int = 20
    entries_per_request: int = 1


PAPER = HotnessSettings()
"""Settings of the preset `dualmap-paper`: shares of 2/n and 1/n in a window of 200 requests."""

CODE = HotnessSettings(hot_share=0.0612, cold_share=0.02, entries_per_request=2)
"""Settings of the preset `dualmap-code`: constant shares of a window of 200 entries. Each request adds two entries, so
a share of 0.0612 of the entries is reached by 12 % of the requests.
"""


class PrefixHotness:
    """The tree of expanded prefixes, and the sliding window of recent key paths that decides which prefixes are hot.

    Takes O(depth) per request; memory is at most window x depth.
    """

    def __init__(self, settings: HotnessSettings) -> None:
        self._settings = settings
        self._requests = max(1, settings.window // settings.entries_per_request)
        self._window: deque[tuple[Key, ...]] = deque()
        self._counts: dict[Key, int] = {}
        self._expanded: dict[Key, set[Key]] = {}

    def key(self, blocks: Sequence[int], first_bytes_hash: int) -> Key:
        """Return the key of a prompt according to the present tree, without changing the tree. A prompt without a full
        block gets a key from its first bytes.
        """
        depth = len(blocks)
        if not depth:
            return (0, first_bytes_hash)
        expanded = self._expanded
        for level in range(1, depth):
            key = (level, blocks[level - 1])
            if key not in expanded:
                return key
        return (depth, blocks[depth - 1])

    def other_keys(self, blocks: Sequence[int], first_bytes_hash: int) -> tuple[Key, ...]:
        """Return the other possible keys of the prompt: the keys that it would have if its prefixes were expanded more
        or less.
        """
        now = self.key(blocks, first_bytes_hash)
        return tuple(key for level, block in enumerate(blocks, 1) if (key := (level, block)) != now)

    def observe(self, blocks: Sequence[int], first_bytes_hash: int, instances: int) -> Key:
        """Count a request of a pool with `instances` accepting instances. Return the request's key according to the
        counts before this request.
        """
        if not blocks:
            return (0, first_bytes_hash)
        leaf = self.key(blocks, first_bytes_hash)
        path = tuple((level, blocks[level - 1]) for level in range(1, leaf[0] + 1))
        counts = self._counts
        for key in path:
            counts[key] = counts.get(key, 0) + 1
        self._window.append(path)
        left = self._window.popleft() if len(self._window) > self._requests else ()
        for key in left:
            if counts[key] == 1:
                del counts[key]
            else:
                counts[key] -= 1
        n = max(1, instances)
        hot = 2 / n if self._settings.hot_share is None else self._settings.hot_share
        cold = 1 / n if self._settings.cold_share is None else self._settings.cold_share
        if len(self._window) >= self._settings.min_samples and self.share(leaf) > hot and leaf[0] < len(blocks):
            self._expanded[leaf] = set()
            if len(path) > 1:
                self._expanded[path[-2]].add(leaf)
        self._collapse_cold(path, cold)
        self._collapse_cold(left, cold)
        return leaf

    def share(self, key: Key) -> float:
        """Return the share (0-1) of the window's entries that have this prefix."""
        entries = len(self._window) * self._settings.entries_per_request
        return self._counts.get(key, 0) / entries if entries else 0.0

    def expanded(self) -> frozenset[Key]:
        """The expanded prefixes: prompts that begin with them have longer keys."""
        return frozenset(self._expanded)

    def counts(self) -> dict[Key, int]:
        """Return, for each prefix, the number of requests in the window whose key path contains the prefix."""
        return dict(self._counts)

    def window(self) -> tuple[tuple[Key, ...], ...]:
        """The key paths in the window, oldest first."""
        return tuple(self._window)

    def _collapse_cold(self, path: Sequence[Key], cold: float) -> None:
        for index, key in enumerate(path):
            if key in self._expanded and (key not in self._counts or self.share(key) < cold):
                if index:
                    self._expanded[path[index - 1]].discard(key)
                self._collapse(key)
                return

    def _collapse(self, key: Key) -> None:
        below = [key]
        while below:
            below.extend(self._expanded.pop(below.pop()))
