"""HostCacheWouldHelp: a cache in engines' host memory would add hits to a pool that misses its objectives."""

from collections.abc import Iterator

from fairlead.advice import wording
from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level
from fairlead.advice.situations import PoolSituation

LEAST_GAIN = 0.03
"""A host cache is advised only if it adds at least this share of the prompt tokens to the hits, after the simulation's
error is subtracted.
"""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield a finding if both the reuse distances and the simulation of the recorded requests show that the cache would
    help.
    """
    found = pool.simulated
    one = None if found is None or found.unlike is not None else found.host_cache
    if found is None or one is None or not one.is_confirmed or one.predicted - one.error < LEAST_GAIN:
        return
    bytes_per_token = pool.moves.bytes_per_token
    size = one.size_words(bytes_per_token)
    unknown = "" if bytes_per_token is not None else "; the size of a token in the KV cache is not known"
    yield Finding(
        pool=pool.pool,
        cause=Cause.HOST_CACHE_WOULD_HELP,
        level=Level.NOTE,
        harm=Harm(amount=one.predicted, unit=HarmUnit.HITS),
        sentence=(
            f"With {size} of host memory per instance for KV caches, {pool.pool} would find {wording.share(one.predicted)} "
            f"(± {wording.share(one.error)}) more of its prompt tokens in caches; the simulation of the last "
            f"{wording.seconds(found.seconds)} finds {wording.share(one.simulated or 0.0)} more{unknown}."
        ),
        evidence=Evidence(kind=EvidenceKind.POOL, seconds=found.seconds),
    )
