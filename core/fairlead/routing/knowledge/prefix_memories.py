"""The prefixes that instances are believed to hold, kept on disk for the router's next process.

If engines report their cache by KV events, the events are used instead. The danger is an engine that restarted at the
same address while the router was stopped. Its cache is empty, but it is believed to hold the blocks of the engine
before it, until the results of its prompts show otherwise. So a memory older than the pool's session TTL is ignored.
"""

import sys
from array import array
from collections.abc import Iterable, Mapping

from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.schedulers import PrefixMemory
from fairlead.routing.knowledge.prefixes import PrefixIndex
from fairlead.tables import RoutingTable

MOST_BLOCKS = 1_000_000
"""Maximum number of blocks kept per pool (8 MB); beyond it, only each instance's most recently used blocks are kept."""


def keep(prefixes: PrefixIndex, table: RoutingTable, loads: Mapping[str, InstanceLoad], now: float) -> tuple[PrefixMemory, ...]:
    """Return the prefixes that each instance is believed to hold, in the form for storage; instances without known
    prefixes are left out.
    """
    instances = [instance for instance in prefixes.instances() if instance in loads]
    most = MOST_BLOCKS // max(1, len(instances))
    return tuple(
        PrefixMemory(
            pool=table.pool,
            uid=table.uid,
            instance=instance,
            address=loads[instance].entry.address,
            block_bytes=table.engine.block_bytes,
            kept_at=now,
            blocks=_packed(prefixes.by_freshness(instance)[-most:]),
        )
        for instance in instances
    )


def recall(
    prefixes: PrefixIndex, table: RoutingTable, loads: Mapping[str, InstanceLoad], memories: Iterable[PrefixMemory], now: float
) -> int:
    """Restore the kept prefixes of the pool's instances, as far as they are still valid. Return the number of instances
    restored.

    If newer knowledge of an instance exists, it takes precedence.
    """
    known = set(prefixes.instances())
    recalled = 0
    for memory in memories:
        load = loads.get(memory.instance)
        if load is None or memory.instance in known or not 0 <= now - memory.kept_at <= table.session.ttl_seconds:
            continue
        if (memory.uid, memory.address, memory.block_bytes) == (table.uid, load.entry.address, table.engine.block_bytes):
            prefixes.insert(memory.instance, _unpacked(memory.blocks)[::-1])
            recalled += 1
    return recalled


def _packed(blocks: Iterable[int]) -> bytes:
    return _little(array("Q", (block & 0xFFFF_FFFF_FFFF_FFFF for block in blocks))).tobytes()


def _unpacked(packed: bytes) -> list[int]:
    found = array("Q")
    found.frombytes(packed[: len(packed) // 8 * 8])
    return _little(found).tolist()


def _little(blocks: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        blocks.byteswap()
    return blocks
