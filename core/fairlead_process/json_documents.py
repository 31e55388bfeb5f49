"""Reads JSON from other parties, in the same way on every version of Python.

Interpreters differ in how deep JSON may nest and in the error for invalid UTF-8. Here the depth has a fixed bound, and
the errors have Fairlead's own words.
"""

from typing import TypeVar

import msgspec

DEEPEST = 64
"""Maximum number of nested lists and objects in a document; a pod template has about twelve."""

_CHUNK = 65_536
_QUOTE = ord('"')
_STEPS = bytes({"[": 1, "{": 1, "]": 255, "}": 255}.get(chr(byte), 0) for byte in range(256))
"""For each byte, the change of the nesting level, as a signed byte."""

Kind = TypeVar("Kind")


def decode_json(content: bytes, decoder: "msgspec.json.Decoder[Kind]", *, deepest: int = DEEPEST) -> Kind:
    """Decode the document in these bytes.

    Raises msgspec.DecodeError if the bytes are not JSON in UTF-8 or nest deeper than `deepest` levels, and its subclass
    ValidationError if the document does not fit the decoder's type.
    """
    if nests_deeper(content, deepest):
        raise msgspec.DecodeError(too_deep(deepest))
    try:
        return decoder.decode(content)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(not_utf8(error)) from None


def read_json(content: bytes, decoder: "msgspec.json.Decoder[Kind]") -> Kind:
    """Decode like `decode_json`, for long documents of which little is read. The depth limit depends on the
    interpreter.

    Raises msgspec.DecodeError.
    """
    try:
        return decoder.decode(content)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(not_utf8(error)) from None


def nests_deeper(content: bytes, deepest: int = DEEPEST) -> bool:
    """Return whether JSON, or the beginning of JSON, nests deeper than `deepest` levels.

    The function examines the bytes, because the depth that decoders accept depends on the interpreter. It takes a
    microsecond if there are few brackets, otherwise about 10 ms per MB.
    """
    if content.count(b"[") + content.count(b"{") <= deepest:
        return False
    import numpy as np  # only here: who reads a spec or a small document does not pay for it

    plain = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    level, quoted = 0, False
    for start in range(0, len(plain), _CHUNK):
        part = plain[start : start + _CHUNK]
        inside = np.logical_xor.accumulate(np.frombuffer(part, dtype=np.uint8) == _QUOTE) ^ quoted
        levels = level + np.where(inside, 0, np.frombuffer(part.translate(_STEPS), dtype=np.int8)).cumsum(dtype=np.int64)
        if levels.max() > deepest:
            return True
        level, quoted = int(levels[-1]), bool(inside[-1])
    return False


def too_deep(deepest: int = DEEPEST) -> str:
    """Return the message for a document that nests too deeply."""
    return f"it is nested deeper than {deepest} levels"


def not_utf8(error: UnicodeDecodeError) -> str:
    """Return the message for a text that is not UTF-8."""
    return f"it is not UTF-8: byte {error.start} cannot be read"
