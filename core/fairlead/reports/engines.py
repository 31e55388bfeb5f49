"""What engines say of themselves that their pool did not expect."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.tables import PoolKey


class EngineTrouble(StrEnum):
    """Why an engine is not what its pool's spec says: a reason of the condition Degraded."""

    MODEL_NOT_SERVED = "ModelNotServed"
    """Its list of models lacks `spec.model`: every request for it will fail."""
    KV_USAGE_MISSING = "KvUsageMissing"
    """Its metrics have no gauge of the name that `spec.engine.metrics.kvUsage` gives."""
    KV_USAGE_IMPLAUSIBLE = "KvUsageImplausible"
    """The gauge is no share from 0 to 1."""
    BLOCK_SIZE_DIFFERS = "BlockSizeDiffers"
    """Its KV blocks have another size than those of the pool's other instances, so its KV events are not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubledEngine:
    """An instance whose engine a router does not find as expected, and what it found in words."""

    pool: PoolKey
    instance: str
    trouble: str
    """An `EngineTrouble`, or the word of a newer router."""
    words: str
