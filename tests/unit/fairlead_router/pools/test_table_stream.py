"""Snapshots of the stream: pools learn which sessions a snapshot lacks, whenever it comes."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from fairlead.reports.bindings import Binding, BindingReason
from fairlead.tables import PoolKey
from fairlead_client.lines import BindingsLine, GatewayKeysLine, StreamLine, SyncedLine
from fairlead_router.pools.table_stream import TableFollower

CHAT = PoolKey(namespace="default", name="chat")


def bound(*sessions: str) -> BindingsLine:
    return BindingsLine(
        bindings=tuple(
            Binding(pool=CHAT, session=name, instance="a", version=1, reason=BindingReason.COLD, bound_at=1.0, migrated_at=None)
            for name in sessions
        )
    )


class Pools:
    def __init__(self) -> None:
        self.known: list[set[str]] = []

    def report_missing(self, sessions: set[tuple[PoolKey, str]]) -> int:
        self.known.append({session for _, session in sessions})
        return 1

    def all(self) -> tuple[()]:
        return ()

    def apply_bindings(self, bindings: tuple[Binding, ...]) -> None: ...

    def __len__(self) -> int:
        return 0


async def snapshots(*lines: StreamLine) -> list[set[str]]:
    """Return the sessions of each snapshot among these lines of one connection, as pools receive them."""
    pools, done = Pools(), asyncio.Event()

    async def stream(router: str) -> AsyncIterator[StreamLine]:
        for line in lines:
            yield line
        done.set()
        await asyncio.Event().wait()

    anything: Any = SimpleNamespace(
        replace=lambda *_: None,
        keep_gateway_keys=lambda *_: None,
        keep_bindings=lambda *_: None,
        replace_bindings=lambda *_: None,
        keep_tables=lambda *_: None,
    )
    api: Any = SimpleNamespace(stream=stream)
    told: Any = pools
    metrics: Any = SimpleNamespace(control_plane_connected=0, stream_reconnects=0)
    follower = TableFollower("r", api, told, anything, anything, metrics, lambda: None, lambda: 1.0)
    task = asyncio.ensure_future(follower.follow_forever())
    await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return pools.known


async def test_the_first_snapshot_of_a_connection_is_compared() -> None:
    lines = (GatewayKeysLine(begins=True), bound("a", "b"), bound("c"), SyncedLine(), bound("d"))
    assert await snapshots(*lines) == [{"a", "b", "c"}]


async def test_a_later_snapshot_on_the_same_connection_is_compared_too() -> None:
    first = (GatewayKeysLine(begins=True), bound("a", "b"), SyncedLine())
    again = (bound("c"), GatewayKeysLine(), bound("d"), GatewayKeysLine(begins=True), bound("a"), SyncedLine(), bound("e"))
    assert await snapshots(*first, *again) == [{"a", "b"}, {"a"}]


async def test_an_older_control_api_that_marks_no_beginning_has_its_first_snapshot_compared() -> None:
    assert await snapshots(GatewayKeysLine(), bound("a"), SyncedLine(), GatewayKeysLine(), bound("b"), SyncedLine()) == [{"a"}]
