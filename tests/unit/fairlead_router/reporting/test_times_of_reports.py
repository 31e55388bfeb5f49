"""The control API stores true times, whatever the clocks of routers and their settings."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.reports.batches import ROW_KINDS, Cargo, Report, ReportReceipt, RouterGone
from fairlead_api.reports.ingestion import Ingested, Ingestion
from fairlead_api.reports.plausibility import CLOCK_TOLERANCE_SECONDS
from fairlead_client.internal import SystemApi
from fairlead_process.clock import SteadyClock
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.keys import GatewayKeys
from fairlead_router.pools.pools import Pools
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.reporting.collecting import encode_batches
from fairlead_router.reporting.delivering import Delivery, Lane
from fairlead_router.reporting.spool import Spool
from fairlead_router.reporting.spool_metrics import SpoolMetrics
from fairlead_testing.builders.reports import a_change
from fairlead_testing.examples import examples

HOUR = 3600.0


@dataclass
class World:
    """The true time, a router's wall clock that differs from it, and an API whose clock is right."""

    truth: float = 1_700_000_000.0
    wall_ahead: float = 0.0
    is_away: bool = False
    stored: dict[str, float] = field(default_factory=dict)
    """Return the time at which each session was bound, as the API stores it."""
    happened: dict[str, float] = field(default_factory=dict)

    def clock(self) -> SteadyClock:
        return SteadyClock(lambda: self.truth + self.wall_ahead, lambda: self.truth)

    async def prepare(self, days: dict[str, set[date]]) -> None:
        pass

    async def ingest(self, reports: Sequence[Report]) -> Ingested:
        self.stored.update({change.session: change.at for report in reports for change in report.bindings})
        return Ingested(receipts=tuple(ReportReceipt(id=report.id, duplicate=False) for report in reports))

    async def forget_router(self, gone: RouterGone) -> None:
        pass

    async def answer(self, request: httpx.Request) -> httpx.Response:
        if self.is_away:
            raise httpx.ConnectError("refused", request=request)
        reports = msgspec.json.decode(request.content, type=list[Report])
        done = await Ingestion(self, dict.fromkeys(ROW_KINDS, 30 * 24 * HOUR)).take(reports, datetime.fromtimestamp(self.truth, UTC))
        return httpx.Response(200, content=msgspec.json.encode(done.receipts))


class Life:
    """One process of the router."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world, self.now, metrics = world, world.clock(), RouterMetrics()
        self.spool = Spool(directory, 1_000_000, self.now)
        self.spool.open()
        self.pools = Pools(lambda _table: pytest.fail("no tables here"), metrics, self.now)
        self.keys = GatewayKeys((), metrics, required=True)
        api = SystemApi("http://api", "token", transport=httpx.MockTransport(world.answer))
        told = SpoolMetrics(self.spool, metrics, self.now)
        self.delivery = Delivery("router-0", self.pools, self.keys, self.spool, api, metrics, told, self.now, lambda: uuid4().hex)

    def record(self, session: str) -> None:
        self.world.happened[session] = self.world.truth
        (batch,) = encode_batches("router-0", {"bindings": [replace(a_change(session), at=self.now())]}, lambda: uuid4().hex)
        self.spool.append(batch.cargo, batch.records, batch.content)

    async def send(self) -> None:
        """Send all reports in the order of `send_forever`: none before the API has answered once."""
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self.delivery.send_forever())
            for _ in range(200):
                await asyncio.sleep(0.01)
                if not len(self.spool):
                    break
            sending.cancel()


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["record", "hear", "restart"]),
        st.floats(-12 * HOUR, 12 * HOUR).map(lambda by: ("set", by)),
        st.floats(0.0, 2 * HOUR).map(lambda by: ("wait", by)),
    ),
    max_size=20,
)


@examples(60)
@given(STEPS)
def test_what_is_stored_happened_then_however_often_the_clock_is_set_and_the_router_restarted(steps: list[object]) -> None:
    asyncio.run(_live(steps))


async def _live(steps: list[object]) -> None:
    world = World()
    with tempfile.TemporaryDirectory() as name:
        life = Life(world, Path(name))
        for number, step in enumerate(steps):
            match step:
                case "record":
                    life.record(f"s{number}")
                case "hear":
                    await life.delivery._send_state()  # history stays on disk: its lane is slow
                case "restart":
                    await life.delivery._send_state()  # a process hears the API every second
                    life = Life(world, Path(name))
                case ("set", float(by)):
                    world.wall_ahead = by
                case ("wait", float(by)):
                    world.truth += by
        await life.delivery._send_state()
        while await life.delivery.send(Lane(cargo=Cargo.HISTORY)):
            pass
    assert world.stored == pytest.approx(world.happened, abs=CLOCK_TOLERANCE_SECONDS + 1.0)


async def test_a_batch_of_an_earlier_process_waits_until_the_api_was_heard(tmp_path: Path) -> None:
    world = World(is_away=True)
    life = Life(world, tmp_path)
    life.record("right")
    world.wall_ahead, world.is_away = 2 * HOUR, False
    await Life(world, tmp_path).send()
    assert world.stored == pytest.approx(world.happened, abs=1.0)


def key(expires_at: float) -> GatewayKeyFacts:
    return GatewayKeyFacts(id="k", digest=sha256(b"flk_k").hexdigest(), expires_at=expires_at)


@pytest.mark.parametrize("ahead", [-2 * HOUR, 0.0, 2 * HOUR])
async def test_a_key_expires_by_the_apis_clock(tmp_path: Path, ahead: float) -> None:
    world = World(wall_ahead=ahead)
    life = Life(world, tmp_path)
    life.keys.replace((key(world.truth + HOUR),), life.now())
    await life.delivery._send_state()
    admit = partial(life.keys.admit, [(b"x-api-key", b"flk_k")], counted=True)
    assert admit(life.now()) is not None
    world.truth += HOUR
    with pytest.raises(BadRequest, match="expired"):
        admit(life.now())


def test_a_file_about_clocks_is_on_disk_only_while_a_clock_is_wrong(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000, lambda: 5.0)
    spool.open()
    spool.hear_clock(0.0)
    assert list(tmp_path.iterdir()) == []
    spool.append(Cargo.HISTORY, 1, b"{}")
    spool.hear_clock(-7_200.0)
    again = Spool(tmp_path, 1_000, lambda: 5.0)
    again.open()
    (left,) = again.batches(Cargo.HISTORY)
    assert left.api_ahead == -7_200.0
    again.discard([left])
    last = Spool(tmp_path, 1_000, lambda: 5.0)
    last.open()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b'{"x":1}'])
def test_a_damaged_file_about_clocks_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "clocks.json").write_bytes(content)
    spool = Spool(tmp_path, 1_000, lambda: 5.0)
    spool.open()
    assert spool.append(Cargo.HISTORY, 1, b"{}").api_ahead is None
