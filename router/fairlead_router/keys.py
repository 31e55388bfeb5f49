"""API keys of the gateway: a client must send one of these shared secrets.

Each key opens every pool; the router has no rights per client.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest

from fairlead_router.refusals import BadRequest


class GatewayKeys:
    """The keys, kept as their SHA-256 digests. Without any, everybody is admitted."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(sha256(key.encode()).digest() for key in keys)

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises BadRequest 401 unless `Authorization: Bearer` or `X-Api-Key` is one of the keys.

        Header names must be lower case.
        """
        if not self._digests:
            return
        shown = False
        for name, value in headers:
            if name == b"x-api-key" or (name == b"authorization" and value[:7].lower() == b"bearer "):
                shown = True
                if self._known(value.strip() if name == b"x-api-key" else value[7:].strip()):
                    return
        message = (
            "the API key is not known to this gateway" if shown else "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY"
        )
        raise BadRequest(401, "invalid_api_key", message, None, [(b"www-authenticate", b"Bearer")])

    def _known(self, key: bytes) -> bool:
        """Whether the key is known; compares with every key in constant time."""
        digest = sha256(key).digest()
        return sum([compare_digest(digest, known) for known in self._digests]) > 0
