"""The version of the internal protocol. It is sent with every call, so that a process refuses a call whose version is
too far from its own with a clear message.

Unknown members and kinds of messages are skipped, so most changes need no new version. The number rises when an older
side would misunderstand a message; the previous release then still understands it.
"""

VERSION = 1
HEADER = "x-fairlead-protocol"
MOST_APART = 1
"""Maximum difference between compatible versions: during an upgrade, two consecutive releases run together."""


def too_far(said: str | None, ours: int = VERSION) -> str | None:
    """Return the reason why the version that a caller sends (`said`, the header's value) is not supported; None if it
    is. A caller without the header has version 1.
    """
    theirs = 1 if said is None else int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None
    if theirs is None:
        return f"{HEADER}: {said[:40] if said else said!r} is not a version; send a whole number"
    if abs(theirs - ours) <= MOST_APART:
        return None
    older = "caller" if theirs < ours else "control API"
    return (
        f"the caller speaks version {theirs} of the internal protocol and this control API version {ours}; they may be {MOST_APART} apart: "
        f"upgrade the {older}, one release at a time"
    )
