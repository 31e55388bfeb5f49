"""Signed exports of the audit log, for verification without the API (`fairlead_client.audit_exports`)."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fairlead.errors import InvalidInput
from fairlead_client.audit_exports import FORMAT, canonical, seed_of, signed_message


class Signer:
    """Signs exports with an Ed25519 key; without one, exports have a chain and no signature."""

    def __init__(self, seed: str | None) -> None:
        """Raises InvalidInput for a key of another form."""
        found = None if seed is None else seed_of(seed)
        if seed is not None and found is None:
            raise InvalidInput("FAIRLEAD_AUDIT_SIGNING_KEY", None, "write 32 random bytes in base64: `openssl rand -base64 32`")
        self._key = None if found is None else Ed25519PrivateKey.from_private_bytes(found)

    @property
    def public_key(self) -> str | None:
        """The public key in hexadecimal."""
        return None if self._key is None else self._key.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> str | None:
        """The signature in hexadecimal."""
        return None if self._key is None else self._key.sign(message).hex()


async def export_lines(
    chunks: AsyncIterator[Sequence[dict[str, Any]]], signer: Signer, start: datetime, end: datetime
) -> AsyncIterator[bytes]:
    """The lines of an export of [start, end); the first chunk has the hash before the first entry."""
    head: dict[str, Any] = {"format": FORMAT, "start": start.isoformat(), "end": end.isoformat(), "key": signer.public_key}
    last, count = None, 0
    async for chunk in chunks:
        if "previous" in chunk[0]:
            head["previous"] = last = chunk[0]["previous"]
            yield _line(head)
            continue
        count, last = count + len(chunk), chunk[-1]["chain"]
        yield b"".join(_line(entry) for entry in chunk)
    signature = signer.sign(signed_message(head, last or ""))
    yield _line({"entries": count, "last": last, "signature": signature})


def _line(document: dict[str, Any]) -> bytes:
    """In the form that is hashed, in which numbers of any size stay as they are."""
    return canonical(document).encode() + b"\n"
