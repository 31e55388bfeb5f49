"""What engines say of their prefix caches, as routing asks it: how many tokens of a prompt an instance holds.

Events feed the index; whoever follows them says whose word counts. An instance without events, and a prompt whose
tokens are not known, are left to what the router remembers of its own requests (`prefixes`).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from fairlead.kv_events.block_index import BlockIndex, Source


class KnownPrompt(Protocol):
    """A prompt as far as its tokens are known: `RoutingRequest` is one."""

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def engine_blocks(self) -> Sequence[int]:
        """Keys of its leading blocks; empty where its tokens are unknown."""


class EngineCaches:
    """The prefix caches of a pool's instances, by their own events.

    `block_tokens` is the size of the engines' blocks, which the first instance that tells decides; one of another size
    is not heard, since a prompt's blocks are divided one way.
    """

    def __init__(self) -> None:
        self.index = BlockIndex()
        self.block_tokens = 0
        """Tokens per block; 0 before an engine has told."""
        self._heard: dict[str, tuple[Source, ...]] = {}
        self._incomplete: set[str] = set()

    @property
    def heard(self) -> Mapping[str, Sequence[Source]]:
        """The instances whose events count, and their data-parallel ranks."""
        return self._heard

    def takes_size(self, block_tokens: int) -> bool:
        """Whether blocks of this size can be compared with the pool's; the first size that is told becomes the pool's.

        A size that no source has any more gives way, as after a rollout to engines with another one.
        """
        if block_tokens == self.block_tokens:
            return True
        if any(self.index.block_size(source) == self.block_tokens for source in self.index.sources):
            return False
        self.block_tokens = block_tokens
        return True

    def hear(self, instance: str, sources: Sequence[Source], *, complete: bool) -> None:
        """The instance's events count from now on. Not `complete`: it may hold blocks of which nothing was heard."""
        self._heard[instance] = tuple(sources)
        if complete:
            self._incomplete.discard(instance)
        else:
            self._incomplete.add(instance)

    def ignore(self, instance: str) -> None:
        """The instance's events do not count any more; its own history does."""
        self._heard.pop(instance, None)
        self._incomplete.discard(instance)

    def hit_tokens(self, prompt: KnownPrompt, instance: str, remembered_tokens: int) -> int:
        """Leading prompt tokens the instance holds, where `remembered_tokens` is what own history says."""
        sources = self._heard.get(instance)
        if sources is None or not prompt.engine_blocks:
            return remembered_tokens
        blocks = sum(self.index.match(source, prompt.engine_blocks) for source in sources) // len(sources)
        return self._judged(prompt, instance, blocks, remembered_tokens)

    def hits_everywhere(self, prompt: KnownPrompt, remembered: Mapping[str, int]) -> Mapping[str, int]:
        """`hit_tokens` on every instance that is heard or remembered; 0 may be among them."""
        if not self._heard or not prompt.engine_blocks:
            return remembered
        matched = self.index.match_everywhere(prompt.engine_blocks)
        hits = dict(remembered)
        for instance, sources in self._heard.items():
            # The engine chooses the rank, and not by prefix: the mean is what to expect.
            blocks = sum(matched.get(source, 0) for source in sources) // len(sources)
            hits[instance] = self._judged(prompt, instance, blocks, remembered.get(instance, 0))
        return hits

    def _judged(self, prompt: KnownPrompt, instance: str, blocks: int, remembered_tokens: int) -> int:
        """Events are believed. Own history may say more where they cannot know better: about tokens behind those that
        are known of the prompt, and about blocks that were stored before anybody listened.
        """
        known = len(prompt.engine_blocks)
        told = min(blocks * self.block_tokens, prompt.prompt_tokens - 1)
        beyond = blocks == known and (known + 1) * self.block_tokens < prompt.prompt_tokens
        return max(told, remembered_tokens) if beyond or instance in self._incomplete else told
