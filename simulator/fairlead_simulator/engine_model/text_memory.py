"""KV memory for requests whose prompts are text, as for an engine behind HTTP. Answers are cached too, so that later
prompts that contain them hit them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fairlead_simulator.engine_model.prefix_tree import BlockWatcher, KvBlockPool, PrefixNode
from fairlead_simulator.engine_model.requests import EngineRequest, Phase


@dataclass(slots=True, kw_only=True, eq=False)
class TextRequest(EngineRequest):
    """A request with its text."""

    prompt: bytes
    answer: Callable[[int], bytes] | None = None
    """The text of the first n tokens of the answer, so that it can be cached for the next turn; None: answers are not
    cached."""
    node: PrefixNode | None = None
    """The deepest node of its known blocks, while it holds memory."""
    tree_blocks: int = 0
    """Number of blocks up to `node`."""

    def context_text(self) -> bytes:
        """Prompt plus the answer so far: what a recomputation must prefill."""
        if self.answer is None or self.generated == 0:
            return self.prompt
        return self.prompt + self.answer(self.generated)


class TextMemory(KvBlockPool):
    """A memory of `capacity` engine blocks of `block_tokens`; `block_bytes` bytes of text fill a block."""

    def __init__(self, capacity: int, block_tokens: int, block_bytes: int, watcher: BlockWatcher | None = None) -> None:
        super().__init__(capacity, block_bytes, watcher)
        self._block_tokens = block_tokens

    def hit_tokens(self, request: TextRequest) -> int:
        """Leading tokens of the context that are cached; never all of them."""
        text = request.context_text()
        usable = min((request.context_tokens - 1) // self._block_tokens, len(text) // self.block_bytes)
        known, _ = self.match(text, usable)
        return known * self._block_tokens

    def loaded_tokens(self, request: TextRequest, hit_tokens: int) -> int:
        """Return 0: the whole cache is on the GPU."""
        return 0

    def take_in(self, request: TextRequest, hit_tokens: int, reserve: int) -> bool:
        """Give a request blocks for its context, if they fit in addition to the reserve."""
        text, known = request.context_text(), hit_tokens // self._block_tokens
        new = self._blocks_for(request.context_tokens) - known
        _, unpinned = self.match(text, known)
        if new + unpinned + reserve > self.available:
            return False
        request.node, request.tree_blocks = self.pin(text, known)
        self.allocate(new)
        return True

    def missing_tokens(self, text: bytes, tokens: int) -> int:
        """Return the tokens of the whole blocks in the first `tokens` of a text that are not cached here."""
        full = min(tokens // self._block_tokens, len(text) // self.block_bytes)
        known, _ = self.match(text, full)
        return (full - known) * self._block_tokens

    def adopt(self, text: bytes, tokens: int) -> int:
        """Cache whole blocks of the first `tokens` of a text, received from another engine, as far as there is room;
        returns how many of the tokens are new here.
        """
        full = min(tokens // self._block_tokens, len(text) // self.block_bytes)
        node, known = self.pin(text, full)
        new = min(full - known, self.available)
        self.allocate(new)
        self.release(self.share(node, known, text, known + new))
        return new * self._block_tokens

    def computed(self, request: TextRequest) -> None:
        """Let other requests hit the text's whole blocks from now on."""
        self._share(request, request.context_tokens)

    def let_go(self, request: TextRequest, stored_tokens: int) -> None:
        """Release a request that leaves with this many tokens stored; whole blocks of its prompt and answer stay
        cached.
        """
        held = self._blocks_for(stored_tokens)
        if request.phase is Phase.DECODING and request.answer is not None:
            self._share(request, stored_tokens)
        self.free(held - request.tree_blocks)
        if request.node is not None:
            self.release(request.node)
        request.node, request.tree_blocks = None, 0

    def _share(self, request: TextRequest, tokens: int) -> None:
        text = request.context_text()
        full = min(tokens // self._block_tokens, len(text) // self.block_bytes)
        if full > request.tree_blocks:
            assert request.node is not None, "a request in memory holds a node"
            request.node = self.share(request.node, request.tree_blocks, text, full)
            request.tree_blocks = full

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._block_tokens)
