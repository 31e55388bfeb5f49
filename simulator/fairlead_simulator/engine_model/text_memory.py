"""KV memory for requests whose prompts are text, as in an engine behind HTTP. Answers are cached too, so a later prompt
that contains an earlier answer finds it in the cache.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fairlead_simulator.engine_model.prefix_tree import BlockWatcher, KvBlockPool, PrefixNode
from fairlead_simulator.engine_model.requests import EngineRequest, Phase


@dataclass(slots=True, kw_only=True, eq=False)
class TextRequest(EngineRequest):
    """A request with its prompt text and the blocks that it holds."""

    prompt: bytes
    answer: Callable[[int], bytes] | None = None
    """A function that returns the text of the answer's first n tokens; needed to cache the answer for the session's
    next turn. None: the answer is not cached.
    """
    node: PrefixNode | None = None
    """The deepest node of the request's blocks in the prefix tree; None while the request holds no memory."""
    tree_blocks: int = 0
    """Number of blocks from the root of the prefix tree to `node`."""

    def context_text(self) -> bytes:
        """Return the prompt followed by the answer so far. This is the text that must be prefilled after a
        preemption.
        """
        if self.answer is None or self.generated == 0:
            return self.prompt
        return self.prompt + self.answer(self.generated)


class TextMemory(KvBlockPool):
    """A memory of `capacity` engine blocks of `block_tokens` tokens each; a block holds `block_bytes` bytes of text."""

    def __init__(self, capacity: int, block_tokens: int, block_bytes: int, watcher: BlockWatcher | None = None) -> None:
        super().__init__(capacity, block_bytes, watcher)
        self._block_tokens = block_tokens

    def hit_tokens(self, request: TextRequest) -> int:
        """Return the number of leading tokens of the context that are cached. The last token always counts as not
        cached.
        """
        text = request.context_text()
        usable = min((request.context_tokens - 1) // self._block_tokens, len(text) // self.block_bytes)
        known, _ = self.match(text, usable)
        return known * self._block_tokens

    def loaded_tokens(self, request: TextRequest, hit_tokens: int) -> int:
        """Return 0, because the whole cache is on the GPU and nothing is loaded from host memory."""
        return 0

    def take_in(self, request: TextRequest, hit_tokens: int, reserve: int) -> bool:
        """Give the request blocks for its context if the blocks fit, with `reserve` blocks left free. Return whether
        they fit.
        """
        text, known = request.context_text(), hit_tokens // self._block_tokens
        new = self._blocks_for(request.context_tokens) - known
        _, unpinned = self.match(text, known)
        if new + unpinned + reserve > self.available:
            return False
        request.node, request.tree_blocks = self.pin(text, known)
        self.allocate(new)
        return True

    def missing_tokens(self, text: bytes, tokens: int) -> int:
        """Return the number of tokens to fetch from another engine. These are the tokens of the whole blocks within the
        text's first `tokens` tokens, without the blocks that are cached here.
        """
        full = min(tokens // self._block_tokens, len(text) // self.block_bytes)
        known, _ = self.match(text, full)
        return (full - known) * self._block_tokens

    def adopt(self, text: bytes, tokens: int) -> int:
        """Cache blocks that were received from another engine: the whole blocks of the text's first `tokens` tokens.
        Blocks for which there is no room are dropped. Return the number of tokens that were not cached before.
        """
        full = min(tokens // self._block_tokens, len(text) // self.block_bytes)
        node, known = self.pin(text, full)
        new = min(full - known, self.available)
        self.allocate(new)
        self.release(self.share(node, known, text, known + new))
        return new * self._block_tokens

    def computed(self, request: TextRequest) -> None:
        """Let other requests hit the whole blocks of the request's text from now on."""
        self._share(request, request.context_tokens)

    def let_go(self, request: TextRequest, stored_tokens: int) -> None:
        """Release the blocks of a request that leaves with `stored_tokens` tokens in memory. The whole blocks of its
        prompt and of a cacheable answer stay cached.
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
