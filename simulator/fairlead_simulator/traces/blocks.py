"""Ids for blocks of 512 tokens, made from ids of blocks of another size or from texts.

As in Mooncake's traces, an id made by this module stands for a prompt's whole text up to the end of the block. So
prompts with the same beginning have the same ids for that beginning. An id that is given to this module may stand for
the whole text, too, or only for the text of its own block, as a hash of the block does.
"""

from collections.abc import Hashable, Sequence

from fairlead_simulator.traces.rows import BLOCK_TOKENS

BYTES_PER_TOKEN = 4.0
"""Assumed number of bytes per token in texts whose tokens were not counted."""


class BlockNames:
    """The block ids of one trace: numbers from 0 on. A block's number stands for the block's content together with all
    blocks before it.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[int, Hashable], int] = {}
        self._next = 0

    def of_ids(self, ids: Sequence[int], input_length: int, block_tokens: int) -> tuple[int, ...]:
        """Return the numbers of a prompt's blocks of 512 tokens. `ids` are the ids of its blocks of `block_tokens`
        tokens. If neither block size is a multiple of the other, the numbers may show a common beginning of two prompts
        as up to one block too short.
        """
        ends = [min(len(ids), -(-(place + 1) * BLOCK_TOKENS // block_tokens)) for place in range(_blocks(input_length))]
        ends[-1] = len(ids)
        return self._chained([tuple(ids[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)])

    def of_text(self, text: bytes, input_length: int, bytes_per_token: float) -> tuple[int, ...]:
        """Return the numbers of the blocks of a prompt with this text. All texts of a trace need the same
        `bytes_per_token`.
        """
        cuts = [round(place * BLOCK_TOKENS * bytes_per_token) for place in range(_blocks(input_length))]
        return self._chained([text[begin:end] for begin, end in zip(cuts, [*cuts[1:], len(text)], strict=True)])

    def fresh(self, input_length: int, known: Sequence[int] = ()) -> tuple[int, ...]:
        """Return the numbers of a prompt's blocks: the blocks `known`, followed by new blocks that no other prompt
        has.
        """
        count = _blocks(input_length) - len(known)
        self._next += count
        return (*known, *range(self._next - count, self._next))

    def _chained(self, parts: Sequence[Hashable]) -> tuple[int, ...]:
        before, found = -1, []
        for part in parts:
            before = self._names.setdefault((before, part), self._next)
            self._next += before == self._next
            found.append(before)
        return tuple(found)


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)
