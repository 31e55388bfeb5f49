"""Rests: the time for which an engine should only decode before it computes the next prompt."""

REST = 0.85
"""A factor on the length of every rest. With a smaller factor, more first tokens meet the TTFT target and fewer answers
meet the TPOT target.
"""


def resting(share: float) -> float:
    """Return the seconds of rest per second of prefill, if decodes need the share `share` of an instance's time.

    A full rest is share / (1 - share). A request that gets its first token at the beginning of a full rest meets the
    TPOT target, even if its answer ends right after the next prefill. For example, after a prefill of 1 s, with steps
    of 30 ms and a target of 100 ms, the rest is 0.43 s, in which 14 tokens are generated. The 15th token comes after
    the next prefill: 15 tokens in 1.43 s are one token per 95 ms. Few answers end at this unfavourable moment.
    """
    return REST * share / (1 - share)


MOST_SHARE = 0.75
"""Upper limit of the share of an instance's time that decodes and other routers' prefills may take together. Without
the limit, a busy instance would compute no new prompt.
"""
OTHERS_COUNT = 0.5
"""The weight of a second of other routers' prefills. It is below 1 because the other routers insert rests too, and the
rests partly coincide.
"""


def among_others(share: float, others: float) -> float:
    """Return the share of an instance's time that this router's prefills must leave free, if decodes need `share` of
    the time and other routers' prefills take `others` of the time. 0 if `share` is 0, because without decodes there is
    no TPOT target to meet.
    """
    return min(MOST_SHARE, share + OTHERS_COUNT * others) if share else 0.0


def rest_seconds(prefill_seconds: float, share: float) -> float:
    """Return the seconds of rest that are required before a prefill of this many seconds."""
    return prefill_seconds * resting(share)
