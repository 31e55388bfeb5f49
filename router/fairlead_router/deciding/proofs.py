"""How two routers show each other that they know a secret, without saying it.

    who asks ── Hello (nonce) ──────► who is asked
             ◄─ Challenge (nonce) ───
             ── Proof (code) ───────►   which answers nobody that gets this wrong
             ◄─ Welcome (code) ──────

A code is an HMAC over both names and both nonces, so that none is good for another connection, or for the other side.
"""

import hmac
import secrets

NONCE_BYTES = 16
_ASKS, _IS_ASKED = b"asks", b"is asked"


def new_nonce() -> bytes:
    """Bytes that were never sent before."""
    return secrets.token_bytes(NONCE_BYTES)


class Handshake:
    """The codes of one connection, from `asking` to `asked` by the `secret` of the latter."""

    def __init__(self, secret: str, asking: str, asked: str, nonces: tuple[bytes, bytes]) -> None:
        self._key = secret.encode()
        self._said = b"".join(len(part).to_bytes(4, "big") + part for part in (asking.encode(), asked.encode(), *nonces))

    def of_asking(self) -> bytes:
        """The code of `Proof`."""
        return self._code(_ASKS)

    def of_asked(self) -> bytes:
        """The code of `Welcome`."""
        return self._code(_IS_ASKED)

    def is_asking(self, code: bytes) -> bool:
        """Whether a `Proof` is valid; the check takes the same time for every code."""
        return hmac.compare_digest(code, self.of_asking())

    def is_asked(self, code: bytes) -> bool:
        """Whether a `Welcome` is good."""
        return hmac.compare_digest(code, self.of_asked())

    def _code(self, side: bytes) -> bytes:
        return hmac.digest(self._key, side + b"\0" + self._said, "sha256")
