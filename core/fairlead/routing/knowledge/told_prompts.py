"""The placements of prompts by other routers, from their reports. A report contains only some of a prompt's blocks (a
sketch).
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from fairlead.reports.shares import PlacedPrompt, depths, told_block
from fairlead.targets import instance_of


class ToldPrompts:
    """Prefixes of other routers' prompts that each instance holds, limited to the size of its KV cache; the oldest are
    dropped first. Only some depths of a prompt are reported. So a hit is never overestimated; it is underestimated by
    less than half.
    """

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity = capacity_blocks
        self._prompts: dict[str, OrderedDict[int, PlacedPrompt]] = {}
        """Each instance's prompts, keyed by their last block, the oldest first."""
        self._lengths: dict[str, int] = {}
        self._holders: dict[int, dict[str, int]] = {}
        """Block → instance → number of the instance's prompts whose report contains this block."""

    def __len__(self) -> int:
        return len(self._holders)

    def set_capacity(self, capacity_blocks: int) -> None:
        """Set the size of each KV cache in blocks."""
        self._capacity = capacity_blocks
        for instance in tuple(self._prompts):
            self._evict(instance)

    def hear(self, prompts: Iterable[PlacedPrompt]) -> None:
        """Record prompts that other routers placed; a known prompt becomes the newest. Invalid sketches are ignored."""
        for prompt in prompts:
            if not 0 < prompt.length <= self._capacity or len(prompt.blocks) != len(tuple(depths(prompt.length))):
                continue
            known = self._prompts.setdefault(prompt.instance, OrderedDict())
            last = prompt.blocks[-1]
            if last in known:
                known.move_to_end(last)
                continue
            known[last] = prompt
            self._lengths[prompt.instance] = self._lengths.get(prompt.instance, 0) + prompt.length
            for block in prompt.blocks:
                holders = self._holders.setdefault(block, {})
                holders[prompt.instance] = holders.get(prompt.instance, 0) + 1
            self._evict(prompt.instance)

    def match(self, blocks: Sequence[int]) -> Mapping[str, int]:
        """Return, for every instance that was reported to hold the first block, the number of leading blocks that it
        holds.
        """
        holders = self._holders
        if not blocks or told_block(blocks[0]) not in holders:
            return {}
        found: dict[str, int] = {}
        for depth, block in enumerate(blocks, 1):
            for instance in holders.get(block >> 11, ()):  # `told_block`, of every block of the prompt
                found[instance] = depth
        return found

    def drop(self, instance: str) -> None:
        """Forget an instance, or a rank of an instance, that is gone or that lost its cache."""
        for name in [known for known in self._prompts if known == instance or instance_of(known) == instance]:
            for prompt in self._prompts.pop(name).values():
                self._forget(prompt)
            del self._lengths[name]

    def clear(self) -> None:
        """Forget all prompts of all instances."""
        self._prompts.clear()
        self._lengths.clear()
        self._holders.clear()

    def _evict(self, instance: str) -> None:
        known = self._prompts[instance]
        while self._lengths[instance] > self._capacity:
            _, oldest = known.popitem(last=False)
            self._lengths[instance] -= oldest.length
            self._forget(oldest)

    def _forget(self, prompt: PlacedPrompt) -> None:
        for block in prompt.blocks:
            holders = self._holders[block]
            holders[prompt.instance] -= 1
            if not holders[prompt.instance]:
                del holders[prompt.instance]
                if not holders:
                    del self._holders[block]
