"""Proofs by which two routers show each other that they know a secret, without sending the secret.

    asking router ── Hello (nonce) ──────► asked router
                  ◄─ Challenge (nonce) ───
                  ── Proof (code) ───────►   the connection is closed if the code is wrong
                  ◄─ Welcome (code) ──────

A code is an HMAC over the names of both routers, both nonces and the sender's side. So it is valid neither for another
connection nor for the other direction.
"""

import hmac
import secrets

NONCE_BYTES = 16
_ASKS, _IS_ASKED = b"asks", b"is asked"


def new_nonce() -> bytes:
    """Return random bytes that were never sent before."""
    return secrets.token_bytes(NONCE_BYTES)


class Handshake:
    """Computes the codes for a connection from the router `asking` to the router `asked`. `secret` is the secret of the
    asked router, `nonces` has the nonces of both routers.
    """

    def __init__(self, secret: str, asking: str, asked: str, nonces: tuple[bytes, bytes]) -> None:
        self._key = secret.encode()
        self._said = b"".join(len(part).to_bytes(4, "big") + part for part in (asking.encode(), asked.encode(), *nonces))

    def of_asking(self) -> bytes:
        """Return the code of the asking router's `Proof`."""
        return self._code(_ASKS)

    def of_asked(self) -> bytes:
        """Return the code of the asked router's `Welcome`."""
        return self._code(_IS_ASKED)

    def is_asking(self, code: bytes) -> bool:
        """Return whether the code of a `Proof` is valid. The comparison takes the same time for every code."""
        return hmac.compare_digest(code, self.of_asking())

    def is_asked(self, code: bytes) -> bool:
        """Return whether the code of a `Welcome` is valid. The comparison takes the same time for every code."""
        return hmac.compare_digest(code, self.of_asked())

    def _code(self, side: bytes) -> bytes:
        return hmac.digest(self._key, side + b"\0" + self._said, "sha256")
