"""Reports are sent so that none is lost and none is stored twice, wherever a process dies."""

import asyncio
import errno
import os
import tempfile
import time
from collections.abc import Callable
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
from fairlead.reports.batches import AskAddress, Cargo, Report, ReportReceipt
from fairlead_client.internal import SystemApi
from fairlead_router.deciding.listed import Listed, ToldRouters
from fairlead_router.main import pool_scheduler_factory
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.keys import GatewayKeys
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.reporting.collecting import encode_batches
from fairlead_router.reporting.delivering import Delivery, Lane
from fairlead_router.reporting.spool import Spool
from fairlead_router.reporting.spool_metrics import SpoolMetrics
from fairlead_testing.builders.reports import a_change, batch_ids
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.examples import examples
from fairlead_testing.waiting import PATIENCE_SECONDS


class Api:
    """An API that stores each report id once, and treats each POST as the test prescribes.

    It takes the POST, refuses it, fails, or takes it and loses the answer.
    """

    def __init__(self) -> None:
        self.stored: dict[str, Report] = {}
        self.behaviour = "take"
        self.posts = 0
        self.poison: set[str] = set()
        self.state: Report | None = None
        self.live_routers: int | None = None
        self.routers: dict[str, AskAddress] | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.posts += 1
        if self.behaviour == "unreachable":
            raise httpx.ConnectError("refused", request=request)
        if self.behaviour == "busy":
            return httpx.Response(503)
        if self.behaviour == "fail":
            return httpx.Response(500)
        if self.behaviour == "refuse":
            return httpx.Response(422)
        if request.url.path == "/internal/v1/routers/gone":
            return httpx.Response(204)
        reports = msgspec.json.decode(request.content, type=list[Report])
        if any(change.session in self.poison for report in reports for change in report.bindings):
            return httpx.Response(500)
        receipts = [
            ReportReceipt(id=report.id, duplicate=report.id in self.stored, live_routers=self.live_routers, routers=self.routers)
            for report in reports
        ]
        for report in reports:
            self.stored.setdefault(report.id, report)
        self.state = reports[0]
        if self.behaviour == "lose-answer":
            raise httpx.ReadError("reset", request=request)
        return httpx.Response(200, content=msgspec.json.encode(receipts))

    def sessions(self) -> list[str]:
        return [change.session for report in self.stored.values() for change in report.bindings]


def _delivery(
    directory: Path,
    api: Api,
    max_bytes: int = 1_000_000,
    keys: GatewayKeys | None = None,
    others: ToldRouters | None = None,
    pools: Pools | None = None,
    now: Callable[[], float] = lambda: 5.0,
) -> tuple[Delivery, Spool, RouterMetrics]:
    spool = Spool(directory, max_bytes, time.time)
    spool.open()
    metrics = RouterMetrics()
    pools = pools or Pools(lambda _table: pytest.fail("no tables here"), metrics, now)
    system_api = SystemApi("http://api", "token", transport=httpx.MockTransport(api))
    spool_metrics = SpoolMetrics(spool, metrics, lambda: 5.0)
    keys = keys or GatewayKeys((), metrics, required=False)
    delivery = Delivery("router-0", pools, keys, spool, system_api, metrics, spool_metrics, now, lambda: uuid4().hex, others)
    return delivery, spool, metrics


STEPS = st.lists(
    st.sampled_from(["record", "take", "unreachable", "busy", "lose-answer", "restart", "die-while-writing", "die-after-answer"]),
    max_size=25,
)


@examples(60)
@given(STEPS)
def test_no_batch_is_lost_or_stored_twice_wherever_the_process_dies(steps: list[str]) -> None:
    asyncio.run(_live_and_die(steps))


async def _live_and_die(steps: list[str]) -> None:
    api = Api()
    new_id = batch_ids()
    written: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        delivery, spool, _ = _delivery(directory, api)
        for number, step in enumerate(steps):
            if step == "record":
                (batch,) = encode_batches("router-0", {"bindings": [a_change(f"s{number}")]}, new_id)
                spool.append(batch.cargo, batch.records, batch.content)
                written.append(f"s{number}")
            elif step == "restart":
                delivery, spool, _ = _delivery(directory, api)
            elif step == "die-while-writing":
                (directory / "9999999999999999.history.1.tmp").write_bytes(b'{"id":"torn","rou')
                delivery, spool, _ = _delivery(directory, api)
            elif held := spool.batches(Cargo.HISTORY):
                contents = {batch.path: batch.path.read_bytes() for batch in held}
                api.behaviour = "take" if step == "die-after-answer" else step
                taken = await delivery.send(Lane(cargo=Cargo.HISTORY, most_batches=1 + number % 3))
                assert taken == (step in ("take", "die-after-answer"))
                if step == "die-after-answer":
                    for path, content in contents.items():
                        path.write_bytes(content)  # it died before the files were removed
                    delivery, spool, _ = _delivery(directory, api)
        api.behaviour = "take"
        await _delivery(directory, api)[0].finish(PATIENCE_SECONDS)
        assert api.sessions() == written
        assert list(directory.iterdir()) == []


def _append(spool: Spool, *sessions: str) -> None:
    for session in sessions:
        (batch,) = encode_batches("router-0", {"bindings": [a_change(session)]}, partial(str, f"batch-{session}"))
        spool.append(batch.cargo, batch.records, batch.content)


async def test_a_batch_the_api_refuses_for_ever_is_set_aside_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    api = Api()
    delivery, spool, metrics = _delivery(tmp_path, api)
    _append(spool, "a")
    api.behaviour = "refuse"
    assert await delivery.send(Lane(cargo=Cargo.HISTORY))
    assert len(spool) == 0
    assert metrics.reports_set_aside == 1
    assert any("0000000000000001.history.1.json" in str(getattr(record, "file", "")) for record in caplog.records)


async def test_one_batch_that_makes_the_api_fail_costs_itself_and_none_of_its_neighbours(tmp_path: Path) -> None:
    api = Api()
    delivery, spool, metrics = _delivery(tmp_path, api)
    _append(spool, *"abcdefgh")
    api.poison = {"d"}
    lane = Lane(cargo=Cargo.HISTORY)
    for _ in range(40):
        if await delivery.send(lane) is None:
            break
    assert sorted(api.sessions()) == list("abcefgh")
    assert (metrics.reports_set_aside, metrics.report_drops) == (1, {})


async def test_nothing_is_set_aside_while_the_api_takes_nothing_at_all(tmp_path: Path) -> None:
    api = Api()
    delivery, spool, metrics = _delivery(tmp_path, api)
    _append(spool, "a")
    api.behaviour = "fail"
    lane = Lane(cargo=Cargo.HISTORY)
    for _ in range(20):
        assert await delivery.send(lane) is False
    assert (len(spool), metrics.reports_set_aside) == (1, 0)


DISKS = ("well", "lets-nothing-go", "accepts-nothing", "no-descriptors")


@examples(30)
@given(st.lists(st.tuples(st.sampled_from(["record", "take", "lose-answer", "restart"]), st.sampled_from(DISKS)), max_size=20))
def test_whatever_the_disk_refuses_meanwhile_each_batch_is_stored_once_in_order_and_no_file_stays(steps: list[tuple[str, str]]) -> None:
    asyncio.run(_refused_by_the_disk(steps))


async def _refused_by_the_disk(steps: list[tuple[str, str]]) -> None:
    api, written = Api(), list[str]()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        delivery, spool, metrics = _delivery(directory, api)
        for number, (step, disk) in enumerate(steps):
            if step == "restart":
                spool.write_again()
                delivery, spool, metrics = _delivery(directory, api)
                continue
            with pytest.MonkeyPatch.context() as patched:
                _refuse(patched, disk)
                if step == "record":
                    _append(spool, f"s{number}")
                    written.append(f"s{number}")
                else:
                    api.behaviour = step
                    await delivery.send(Lane(cargo=Cargo.HISTORY, most_batches=1 + number % 3))
        api.behaviour = "take"
        spool.write_again()
        await delivery.finish(PATIENCE_SECONDS)
        assert api.sessions() == written
        assert (list(directory.iterdir()), metrics.reports_set_aside, metrics.report_drops) == ([], 0, {})


def _refuse(patched: pytest.MonkeyPatch, disk: str) -> None:
    """Let system calls on the spool fail: deletions, writes, or all calls that need a descriptor."""

    def failing(code: int) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        return fail

    if disk == "lets-nothing-go":
        patched.setattr(Path, "unlink", failing(errno.EROFS))
    if disk in ("accepts-nothing", "no-descriptors"):
        patched.setattr(Path, "open", failing(errno.ENOSPC if disk == "accepts-nothing" else errno.EMFILE))
    if disk == "no-descriptors":
        patched.setattr(Path, "read_bytes", failing(errno.EMFILE))


async def test_a_backlog_leaves_in_few_posts_and_an_outage_does_not_make_them_smaller(tmp_path: Path) -> None:
    api = Api()
    delivery, spool, _ = _delivery(tmp_path, api)
    names = [f"s{number}" for number in range(300)]
    _append(spool, *names)
    lane = Lane(cargo=Cargo.HISTORY)
    api.behaviour = "unreachable"
    for _ in range(5):
        assert await delivery.send(lane) is False
    api.behaviour, api.posts = "take", 0
    assert await delivery.send(lane)
    assert (api.posts, api.sessions()) == (1, names)


async def test_a_new_table_is_acknowledged_while_the_lanes_are_busy(tmp_path: Path) -> None:
    api = Api()
    delivery, spool, _ = _delivery(tmp_path, api)
    _append(spool, "a")
    api.poison = {"a"}  # no lane gets through
    sending = asyncio.create_task(delivery.send_forever())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while api.state is None:
            await asyncio.sleep(0.01)
    sending.cancel()
    await asyncio.wait([sending])
    assert api.sessions() == []


async def test_the_state_of_the_moment_goes_with_a_batch_however_old_it_is(tmp_path: Path) -> None:
    api = Api()
    delivery, spool, _ = _delivery(tmp_path, api)
    (batch,) = encode_batches("router-0", {"bindings": [a_change("a")]}, batch_ids())
    spool.append(batch.cargo, batch.records, batch.content)
    await delivery.finish(PATIENCE_SECONDS)
    report = api.state
    assert report is not None
    assert (report.router, report.sent_at, report.in_flight) == ("router-0", 5.0, ())


async def test_learned_figures_are_computed_once_a_second_and_for_a_new_table_however_many_posts_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[float] = []
    seconds = [5.0]

    def compute(_pool: Pool, now: float) -> tuple[()]:
        computed.append(now)
        return ()

    monkeypatch.setattr("fairlead_router.reporting.delivering.learnt_figures", compute)
    pools = Pools(pool_scheduler_factory("router-0", 1, 1.0, 2), RouterMetrics(), lambda: seconds[0])
    pools.apply(routing_table(["127.0.0.1:1"]))
    delivery, spool, _ = _delivery(tmp_path, Api(), pools=pools, now=lambda: seconds[0])

    async def post() -> None:
        _append(spool, "s")
        assert await delivery.send(Lane(cargo=Cargo.HISTORY))

    for _ in range(3):
        await post()
    assert computed == [5.0]
    seconds[0] = 6.0
    await post()
    assert computed == [5.0, 6.0]
    pools.apply(routing_table(["127.0.0.1:1", "127.0.0.1:2"], version=2))
    await post()
    assert computed == [5.0, 6.0, 6.0]


async def test_the_number_of_routers_is_that_of_the_last_answer_that_told_one(tmp_path: Path) -> None:
    api = Api()
    delivery, spool, metrics = _delivery(tmp_path, api)
    seen = [metrics.live_routers]
    for told, behaviour in ((2, "take"), (3, "unreachable"), (None, "take"), (1, "take")):
        api.live_routers, api.behaviour = told, behaviour
        _append(spool, "s")
        await delivery.send(Lane(cargo=Cargo.HISTORY))
        seen.append(metrics.live_routers)
    assert seen == [1, 2, 2, 2, 1]


async def test_where_a_router_can_be_asked_goes_with_its_state_and_where_others_can_comes_back(tmp_path: Path) -> None:
    api, others = Api(), ToldRouters()
    delivery, spool, _ = _delivery(tmp_path, api, others=others)

    async def send() -> AskAddress | None:
        _append(spool, "s")
        await delivery.send(Lane(cargo=Cargo.HISTORY))
        assert api.state is not None
        return api.state.asked_at

    assert await send() is None
    own = Listed(router="router-0", host="10.0.0.7", port=9100, secret="s" * 64, protocol=2)
    others.enter(own)
    there = AskAddress(host="10.0.0.7", port=9100, secret="s" * 64, protocol=2)
    api.routers = {"router-0": there}
    assert await send() == there
    assert others.listed() == {"router-0": own}
    api.routers = None
    await send()
    assert others.listed() == {"router-0": own}, "an API that does not tell has not said that nobody is there"
    others.leave("router-0")
    assert await send() is None
    assert "s" * 64 not in repr(there) + repr(own)


async def test_a_keys_limit_is_shared_with_the_routers_that_a_receipt_tells(tmp_path: Path) -> None:
    api, metrics = Api(), RouterMetrics()
    keys = GatewayKeys((), metrics, required=True)
    keys.replace((GatewayKeyFacts(id="k", digest=sha256(b"flk_k").hexdigest(), requests_per_minute=4),), 5.0)
    delivery, spool, _ = _delivery(tmp_path, api, keys=keys)
    api.live_routers = 2
    _append(spool, "s")
    await delivery.send(Lane(cargo=Cargo.HISTORY))
    for _ in range(2):
        keys.admit([(b"x-api-key", b"flk_k")], 5.0, counted=True)
    with pytest.raises(BadRequest, match="4 requests a minute over 2 routers"):
        keys.admit([(b"x-api-key", b"flk_k")], 5.0, counted=True)
