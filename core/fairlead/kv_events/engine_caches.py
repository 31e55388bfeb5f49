"""Computes the number of a prompt's tokens that an instance holds in its cache. The source is the engine's events or,
without events, the router's own requests.

Events update the index; `hear` and `ignore` say which instances' events count. For an instance without events, and for
a prompt whose tokens are not known, the router uses its own history of requests (`prefixes`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fairlead.kv_events.block_index import BlockIndex
from fairlead.kv_events.sources import NOTHING_SLOW, Source, TierCounts
from fairlead.slot_masks import SlotPlaces, SlotVector

ASSUMED_BLOCK_TOKENS = 16
"""Tokens per block of a shared store before an engine has reported its own; vLLM's default."""


class KnownPrompt(Protocol):
    """A prompt: its length, and the keys of its leading blocks as far as their tokens are known. `RoutingRequest`
    implements this protocol.
    """

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def engine_blocks(self) -> Sequence[int]:
        """Keys of the prompt's leading blocks; empty if its tokens are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """For a list of instances, each instance's position in vectors, and whether its events count."""

    instances: Sequence[str]
    version: tuple[int, int]
    """Version of the index's slots and of the set of followed instances."""
    places_of_slots: SlotPlaces
    """Slot → position of the slot's instance. All slots of instances that are not in the list have one further
    position.
    """
    heard: npt.NDArray[np.bool_]
    incomplete: npt.NDArray[np.bool_]


class EngineCaches:
    """The prefix caches of a pool's instances, according to the instances' events. Instances here are targets
    (`fairlead.targets`): each data-parallel rank has its own cache.

    `block_tokens` is the size of the engines' blocks, set by the first instance that reports it. Events of another size
    are ignored, since a prompt is divided into blocks in only one way.
    """

    def __init__(self) -> None:
        self.index = BlockIndex()
        self.block_tokens = 0
        """Tokens per block; 0 before an engine has reported it."""
        self.heard: dict[str, Source] = {}
        """The instances whose events count, each with its event source. Callers only read it."""
        self._incomplete: set[str] = set()
        self._heard_version = 0
        self._layout: _Layout | None = None
        self._shared_tokens = 0
        self._shared_medium: str | None = None

    def takes_size(self, block_tokens: int) -> bool:
        """Return whether blocks of this size can be compared with the pool's blocks. The first reported size becomes
        the pool's block size. Once no source has that size any more, for example after a rollout, the next reported
        size replaces it.
        """
        if block_tokens == self.block_tokens:
            return True
        if any(self.index.block_size(source) == self.block_tokens for source in self.index.sources):
            return False
        self.block_tokens = block_tokens
        self.share(self._shared_tokens, self._shared_medium)
        return True

    def share(self, tokens: int, medium: str | None) -> None:
        """Record that all engines read one store of this many tokens; 0 = there is no such store
        (`BlockIndex.share`).
        """
        self._shared_tokens, self._shared_medium = tokens, medium
        self.index.share(tokens // (self.block_tokens or ASSUMED_BLOCK_TOKENS), medium)

    def shared_tokens(self, prompt: KnownPrompt) -> int | None:
        """Return the leading prompt tokens that the shared store holds; None if the events cannot show that."""
        if not self.index.shared_blocks or not prompt.engine_blocks:
            return None
        return min(self.index.match_shared(prompt.engine_blocks) * self.block_tokens, prompt.prompt_tokens - 1)

    def slow_tokens(self, prompt: KnownPrompt, instance: str) -> TierCounts:
        """Return the prompt's tokens that the instance would load from each tier outside its GPU, according to its
        events.
        """
        source = self.heard.get(instance)
        if source is None or not prompt.engine_blocks or not self.index.is_tiered:
            return NOTHING_SLOW
        return self._tokens(self.index.slow_blocks(source, prompt.engine_blocks))

    def slow_rows(self, prompt: KnownPrompt, instances: Sequence[str]) -> list[tuple[int, TierCounts]]:
        """Return (position, tokens) of each instance that would load tokens from outside its GPU; see `hit_vector`."""
        if not self.heard or not prompt.engine_blocks or not self.index.is_tiered:
            return []
        layout = self._layout_of(instances)
        rows = ((layout.places_of_slots.of(slot), counts) for slot, counts in self.index.slow_slots(prompt.engine_blocks))
        return [(place, self._tokens(counts)) for place, counts in rows if place < len(instances)]

    def _tokens(self, blocks: TierCounts) -> TierCounts:
        host, disk, remote = blocks
        return host * self.block_tokens, disk * self.block_tokens, remote * self.block_tokens

    def hear(self, instance: str, source: Source, *, complete: bool) -> None:
        """Use the instance's events from now on. If `complete` is False, the instance may hold blocks whose events were
        missed.
        """
        if self.heard.get(instance) == source and complete != (instance in self._incomplete):
            return
        self._heard_version += 1
        self.heard[instance] = source
        if complete:
            self._incomplete.discard(instance)
        else:
            self._incomplete.add(instance)

    def ignore(self, instance: str) -> None:
        """Stop using the instance's events. The router's own history of requests is used instead."""
        self._heard_version += 1
        self.heard.pop(instance, None)
        self._incomplete.discard(instance)

    def rests_on_guess(self, prompt: KnownPrompt, instance: str) -> bool:
        """Return whether `hit_tokens` counts blocks that no event has reported and that are only expected."""
        source, keys = self.heard.get(instance), prompt.engine_blocks
        return source is not None and self.index.match(source, keys) > self.index.match(source, keys, expected=False)

    def hit_tokens(self, prompt: KnownPrompt, instance: str, remembered_tokens: int) -> int:
        """Return the number of leading prompt tokens that the instance holds; `remembered_tokens` is the number
        according to the router's own history.
        """
        source = self.heard.get(instance)
        if source is None or not prompt.engine_blocks:
            return remembered_tokens
        return self._judged(prompt, instance, self.index.match(source, prompt.engine_blocks), remembered_tokens)

    def hits_everywhere(self, prompt: KnownPrompt, remembered: Mapping[str, int]) -> Mapping[str, int]:
        """Return `hit_tokens` of each instance that has events or is in the router's own history. It may be 0."""
        if not self.heard or not prompt.engine_blocks:
            return remembered
        matched = self.index.match_everywhere(prompt.engine_blocks)
        hits = dict(remembered)
        for instance, source in self.heard.items():
            hits[instance] = self._judged(prompt, instance, matched.get(source, 0), remembered.get(instance, 0))
        return hits

    def hit_vector(self, prompt: KnownPrompt, instances: Sequence[str], remembered: SlotVector) -> SlotVector:
        """Return `hit_tokens` of each of the instances, in their order. `remembered` is the vector of tokens according
        to the router's own history. As long as `instances` has not changed, pass the same list object.
        """
        keys = prompt.engine_blocks
        if not self.heard or not keys:
            return remembered
        layout = self._layout_of(instances)
        depths = np.zeros(len(instances) + 1, dtype=np.int64)
        layout.places_of_slots.write(depths, self.index.match_slots(keys))
        blocks = depths[:-1]
        told = np.minimum(blocks * self.block_tokens, prompt.prompt_tokens - 1)
        unsure = layout.incomplete
        if self._goes_on(prompt):
            unsure = unsure | (blocks == len(keys))
        return np.where(layout.heard, np.where(unsure, np.maximum(told, remembered), told), remembered)

    def _layout_of(self, instances: Sequence[str]) -> _Layout:
        version = (self.index.slots_version, self._heard_version)
        layout = self._layout
        if layout is None or layout.instances is not instances or layout.version != version:
            layout = self._layout = self._laid_out(instances, version)
        return layout

    def _laid_out(self, instances: Sequence[str], version: tuple[int, int]) -> _Layout:
        slots = self.index.slots()
        places = np.full(max(slots.values(), default=-1) + 1, len(instances), dtype=np.int64)
        for place, instance in enumerate(instances):
            source = self.heard.get(instance)
            if source is not None and (slot := slots.get(source)) is not None:
                places[slot] = place
        return _Layout(
            instances=instances,
            version=version,
            places_of_slots=SlotPlaces(places),
            heard=np.array([instance in self.heard for instance in instances], dtype=np.bool_),
            incomplete=np.array([instance in self._incomplete for instance in instances], dtype=np.bool_),
        )

    def _judged(self, prompt: KnownPrompt, instance: str, blocks: int, remembered_tokens: int) -> int:
        """Return the number of the prompt's tokens that the instance holds. Events take precedence. The router's own
        history adds two things that events cannot show: tokens beyond the known tokens of the prompt, and blocks stored
        before the router subscribed.
        """
        told = min(blocks * self.block_tokens, prompt.prompt_tokens - 1)
        beyond = blocks == len(prompt.engine_blocks) and self._goes_on(prompt)
        return max(told, remembered_tokens) if beyond or instance in self._incomplete else told

    def _goes_on(self, prompt: KnownPrompt) -> bool:
        """Return whether the prompt continues beyond its known blocks."""
        return (len(prompt.engine_blocks) + 1) * self.block_tokens < prompt.prompt_tokens
