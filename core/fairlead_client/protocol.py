"""The version of the internal protocol. It is sent with every call, so that a process can refuse a call with a clear
message if the call's version is too far from its own.

Unknown members and kinds of messages are skipped, so most changes need no new version. The number rises when an older
process would misunderstand a message; processes of the previous release still understand the new version.
"""

VERSION = 1
HEADER = "x-fairlead-protocol"
MOST_APART = 1
"""Maximum difference between compatible versions: during an upgrade, two consecutive releases run together."""


def too_far(said: str | None, ours: int = VERSION) -> str | None:
    """Return the reason why the version that a caller sends (`said`, the header's value) is not supported; None if the
    version is supported. A caller without the header has version 1.
    """
    theirs = 1 if said is None else int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None
    if theirs is None:
        return f"{HEADER}: {said[:40] if said else said!r} is not a version; send a whole number"
    if abs(theirs - ours) <= MOST_APART:
        return None
    older = "caller" if theirs < ours else "control API"
    return (
        f"the caller speaks version {theirs} of the internal protocol and this control API version {ours}; they may differ by at most {MOST_APART}: "
        f"upgrade the {older}, one release at a time"
    )
