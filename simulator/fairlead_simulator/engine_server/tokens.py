"""The simulated engine's tokenizer. Every `bytes_per_token` bytes of UTF-8 are one token; only the last token of a text
may be shorter.

A token's id is the number that its bytes form in little-endian order. A shorter token is padded with the byte 0xFF,
which never occurs in UTF-8, so every id stands for exactly one text and no vocabulary is needed. With the usual 4 bytes
per token, an id fits an unsigned 32-bit integer, and a prompt's ids take as many bytes as its text.
"""

from collections.abc import Sequence

from fairlead_simulator.engine_server.request_errors import RequestInvalid, unsuitable

_WIDEST = 7
"""Maximum bytes per token for which tokens have ids. Larger ids would not be exact as JSON numbers."""

_FILLER = b"\xff"


class ByteTokenizer:
    """A tokenizer between text and token ids. The engine model and the responses' `usage` both use its numbers of
    tokens.
    """

    def __init__(self, bytes_per_token: int) -> None:
        self._width = bytes_per_token

    def count(self, prompt: bytes) -> int:
        """Return the number of tokens of a prompt."""
        return -(-len(prompt) // self._width)

    def ids(self, prompt: bytes) -> list[int]:
        """Return the token ids of a prompt. Raises RequestInvalid if `bytes_per_token` is too large for ids."""
        self._check_width()
        width = self._width
        return [int.from_bytes(prompt[at : at + width].ljust(width, _FILLER), "little") for at in range(0, len(prompt), width)]

    def prompt(self, ids: Sequence[object], field: str) -> bytes:
        """Return the bytes of a prompt that is given as token ids. A short token in the middle of the prompt keeps its
        padding, so that the prompt has as many tokens as ids. Raises RequestInvalid, naming `field`.
        """
        self._check_width()
        pieces: list[bytes] = []
        for place, number in enumerate(ids):
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise unsuitable(f"{field}.{place}", number, "a token id")
            if number >= (1 << (8 * self._width)) - 1:  # the last one would be filling only
                raise RequestInvalid(f"Token id {number} is out of vocabulary")
            pieces.append(number.to_bytes(self._width, "little"))
        return b"".join(pieces).rstrip(_FILLER)

    def text(self, prompt: bytes) -> str:
        """Return the text of a prompt's bytes. As in other byte tokenizers, bytes that are not UTF-8 become U+FFFD."""
        return prompt.replace(_FILLER, b"").decode("utf-8", "replace")

    def pieces(self, prompt: bytes) -> list[str]:
        """Return the text of each token of a prompt."""
        return [self.text(prompt[at : at + self._width]) for at in range(0, len(prompt), self._width)]

    def _check_width(self) -> None:
        if self._width > _WIDEST:
            raise RequestInvalid(
                f"tokens of {self._width} bytes have no ids; start the engine with --bytes-per-token of at most {_WIDEST}",
                status=501,
                kind="NotImplementedError",
            )
