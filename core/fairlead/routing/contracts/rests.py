"""Rests: how long an engine should only decode before it computes the next prompt."""

REST = 0.85
"""The length of a rest as a share of a full one. With a smaller share, more first tokens are in time and fewer answers
meet their TPOT target.
"""


def resting(share: float) -> float:
    """Seconds of rest beside each second of prefill, where decodes need that `share` of an instance's time.

    After a whole rest, of share / (1 - share), a request whose first token came at its beginning has its tokens within
    the target even if its answer ends with the prefill after it. For example, a prefill of 1 s where steps take 30 ms
    of 100 ms: 0.43 s, in which come 14 tokens; 15 tokens in 1.43 s are one in 95 ms. Most answers do not end just then.
    """
    return REST * share / (1 - share)


MOST_SHARE = 0.75
"""The largest share of an instance's time that decodes and others' prefills get; with more, nothing new would be
computed there.
"""
OTHERS_COUNT = 0.5
"""The weight of a second of other routers' prefills: they rest too, partly at the same time."""


def among_others(share: float, others: float) -> float:
    """The share of an instance's time that this router's prefills leave alone, where other routers' prefills take
    `others` of it and decodes need `share`. With no decodes to keep at their pace there is nothing to leave.
    """
    return min(MOST_SHARE, share + OTHERS_COUNT * others) if share else 0.0


def rest_seconds(prefill_seconds: float, share: float) -> float:
    """Seconds of rest before a prefill of this length."""
    return prefill_seconds * resting(share)
