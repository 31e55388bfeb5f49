"""Batching, spooling and sending reports; above all: nothing lost, nothing stored twice, wherever a process dies."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.reports import BindingChange, BindingReason, MigrationRecord, RejectionReason, RejectionRecord, Report, ReportReceipt
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pools import Pools
from fairlead_router.reporting import BATCH_RECORDS, Lane, Record, Reporter, encode_batches, spooled_changes
from fairlead_router.spool import Cargo, Spool
from fairlead_testing.fakes.control_api import CHAT


def _change(session: str, instance: str = "i0", based_on: int = 0) -> BindingChange:
    return BindingChange(pool=CHAT, session=session, instance=instance, reason=BindingReason.COLD, at=1.0, based_on=based_on)


def _migration(name: str) -> MigrationRecord:
    return MigrationRecord(
        id=name,
        pool=CHAT,
        session="s",
        request="r",
        source="i0",
        target="i1",
        trigger=BindingReason.SLO,
        at=1.0,
        predicted_source_ttft_seconds=1.0,
        predicted_target_ttft_seconds=0.5,
        benefit_seconds=0.5,
    )


def _rejection(second: int) -> RejectionRecord:
    return RejectionRecord(
        pool=CHAT,
        second=second,
        reason=RejectionReason.QUEUE_FULL,
        count=1,
        status=429,
        sample_request="r",
        sample_prompt_tokens=1,
        retry_after_seconds=1.0,
    )


def _ids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"batch-{next(numbers)}"


class Api:
    """An API that stores reports once by id, and does to each POST what the test says: take, refuse, fail, or take and lose the answer."""

    def __init__(self) -> None:
        self.stored: dict[str, Report] = {}
        self.behaviour = "take"
        self.posts = 0
        self.poison: set[str] = set()
        self.state: Report | None = None

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
        receipts = [ReportReceipt(id=report.id, duplicate=report.id in self.stored) for report in reports]
        for report in reports:
            self.stored.setdefault(report.id, report)
        self.state = reports[0]
        if self.behaviour == "lose-answer":
            raise httpx.ReadError("reset", request=request)
        return httpx.Response(200, content=msgspec.json.encode(receipts))

    def sessions(self) -> list[str]:
        return [change.session for report in self.stored.values() for change in report.bindings]


def _reporter(directory: Path, api: Api, max_bytes: int = 1_000_000) -> tuple[Reporter, Spool, RouterMetrics]:
    spool = Spool(directory, max_bytes)
    spool.open()
    metrics = RouterMetrics()
    pools = Pools(lambda _table: pytest.fail("no tables here"), metrics, lambda: 5.0)
    client = httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="http://api")
    return Reporter("router-0", pools, spool, client, metrics, lambda: 5.0, _ids()), spool, metrics


def test_records_are_cut_into_batches_with_history_apart_from_samples() -> None:
    changes: list[Record] = [_change(f"s{number}") for number in range(BATCH_RECORDS + 3)]
    batches = list(encode_batches("router-0", {"bindings": changes, "rejections": [_rejection(1)], "loads": []}, _ids()))
    assert [(batch.cargo, batch.records) for batch in batches] == [(Cargo.HISTORY, BATCH_RECORDS), (Cargo.HISTORY, 4)]
    sessions = [change["session"] for batch in batches for change in msgspec.json.decode(batch.content).get("bindings", [])]
    assert sessions == [f"s{number}" for number in range(BATCH_RECORDS + 3)]


STEPS = st.lists(
    st.sampled_from(["record", "take", "unreachable", "busy", "lose-answer", "restart", "die-while-writing", "die-after-answer"]),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_no_batch_is_lost_or_stored_twice_wherever_the_process_dies(steps: list[str]) -> None:
    asyncio.run(_live_and_die(steps))


async def _live_and_die(steps: list[str]) -> None:
    api = Api()
    new_id = _ids()
    written: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        reporter, spool, _ = _reporter(directory, api)
        for number, step in enumerate(steps):
            if step == "record":
                (batch,) = encode_batches("router-0", {"bindings": [_change(f"s{number}")]}, new_id)
                spool.append(batch.cargo, batch.records, batch.content)
                written.append(f"s{number}")
            elif step == "restart":
                reporter, spool, _ = _reporter(directory, api)
            elif step == "die-while-writing":
                (directory / "9999999999999999.history.1.tmp").write_bytes(b'{"id":"torn","rou')
                reporter, spool, _ = _reporter(directory, api)
            elif held := spool.batches(Cargo.HISTORY):
                contents = {batch.path: batch.path.read_bytes() for batch in held}
                api.behaviour = "take" if step == "die-after-answer" else step
                taken = await reporter.send(Lane(cargo=Cargo.HISTORY, most_batches=1 + number % 3))
                assert taken == (step in ("take", "die-after-answer"))
                if step == "die-after-answer":
                    for path, content in contents.items():
                        path.write_bytes(content)  # it died before the files were removed
                    reporter, spool, _ = _reporter(directory, api)
        api.behaviour = "take"
        await _reporter(directory, api)[0].finish(5.0)
        assert api.sessions() == written
        assert list(directory.iterdir()) == []


def _append(spool: Spool, *sessions: str) -> None:
    for session in sessions:
        (batch,) = encode_batches("router-0", {"bindings": [_change(session)]}, partial(str, f"batch-{session}"))
        spool.append(batch.cargo, batch.records, batch.content)


async def test_a_batch_the_api_refuses_for_ever_is_set_aside_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    api = Api()
    reporter, spool, metrics = _reporter(tmp_path, api)
    _append(spool, "a")
    api.behaviour = "refuse"
    assert await reporter.send(Lane(cargo=Cargo.HISTORY))
    assert len(spool) == 0
    assert metrics.reports_set_aside == 1
    assert any("0000000000000001.history.1.json" in str(getattr(record, "file", "")) for record in caplog.records)


async def test_one_batch_that_makes_the_api_fail_costs_itself_and_none_of_its_neighbours(tmp_path: Path) -> None:
    api = Api()
    reporter, spool, metrics = _reporter(tmp_path, api)
    _append(spool, *"abcdefgh")
    api.poison = {"d"}
    lane = Lane(cargo=Cargo.HISTORY)
    for _ in range(40):
        if await reporter.send(lane) is None:
            break
    assert sorted(api.sessions()) == list("abcefgh")
    assert (metrics.reports_set_aside, metrics.report_drops) == (1, {})


async def test_nothing_is_set_aside_while_the_api_takes_nothing_at_all(tmp_path: Path) -> None:
    api = Api()
    reporter, spool, metrics = _reporter(tmp_path, api)
    _append(spool, "a")
    api.behaviour = "fail"
    lane = Lane(cargo=Cargo.HISTORY)
    for _ in range(20):
        assert await reporter.send(lane) is False
    assert (len(spool), metrics.reports_set_aside) == (1, 0)


async def test_a_backlog_leaves_in_few_posts_and_an_outage_does_not_make_them_smaller(tmp_path: Path) -> None:
    api = Api()
    reporter, spool, _ = _reporter(tmp_path, api)
    names = [f"s{number}" for number in range(300)]
    _append(spool, *names)
    lane = Lane(cargo=Cargo.HISTORY)
    api.behaviour = "unreachable"
    for _ in range(5):
        assert await reporter.send(lane) is False
    api.behaviour, api.posts = "take", 0
    assert await reporter.send(lane)
    assert (api.posts, api.sessions()) == (1, names)


async def test_a_new_table_is_acknowledged_while_the_lanes_are_busy(tmp_path: Path) -> None:
    api = Api()
    reporter, spool, _ = _reporter(tmp_path, api)
    _append(spool, "a")
    api.poison = {"a"}  # no lane gets through
    sending = asyncio.create_task(reporter.send_forever())
    async with asyncio.timeout(5):
        while api.state is None:
            await asyncio.sleep(0.01)
    sending.cancel()
    await asyncio.wait([sending])
    assert api.sessions() == []


async def test_the_age_of_the_oldest_unsent_report_is_a_metric_and_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = iter([5.0])
    spool = Spool(tmp_path, 1000, lambda: next(clock))
    spool.open()
    metrics = RouterMetrics()
    now = 5.0
    pools = Pools(lambda _table: pytest.fail("no tables here"), metrics, lambda: now)
    client = httpx.AsyncClient(transport=httpx.MockTransport(Api()), base_url="http://api")
    reporter = Reporter("router-0", pools, spool, client, metrics, lambda: now, _ids())
    _append(spool, "a")
    now = 45.0
    await reporter.collect()
    await reporter.collect()
    assert metrics.oldest_unsent_report_seconds == 40.0
    assert [record.message for record in caplog.records] == ["reports wait to be sent"]
    await reporter.send(Lane(cargo=Cargo.HISTORY))
    assert metrics.oldest_unsent_report_seconds == 0.0


def test_a_migration_never_parts_from_its_binding() -> None:
    changes: list[Record] = [replace(_change(f"s{number}"), id=f"m{number}") for number in range(BATCH_RECORDS)]
    moves: list[Record] = [_migration(f"m{number}") for number in range(0, BATCH_RECORDS, 2)]
    batches = [
        msgspec.json.decode(batch.content) for batch in encode_batches("router-0", {"bindings": changes, "migrations": moves}, _ids())
    ]
    assert len(batches) == 2
    assert sum(len(batch["migrations"]) for batch in batches) == len(moves)
    for batch in batches:
        assert {move["id"] for move in batch["migrations"]} <= {change["id"] for change in batch["bindings"]}


async def test_the_state_of_the_moment_goes_with_a_batch_however_old_it_is(tmp_path: Path) -> None:
    api = Api()
    reporter, spool, _ = _reporter(tmp_path, api)
    (batch,) = encode_batches("router-0", {"bindings": [_change("a")]}, _ids())
    spool.append(batch.cargo, batch.records, batch.content)
    await reporter.finish(5.0)
    report = api.state
    assert report is not None
    assert (report.router, report.sent_at, report.in_flight) == ("router-0", 5.0, ())


async def test_what_the_disk_does_not_take_is_kept_in_memory_and_tried_again(tmp_path: Path) -> None:
    api = Api()
    directory = tmp_path / "reports"
    reporter, spool, _ = _reporter(directory, api)
    reporter._unspooled = list(encode_batches("router-0", {"bindings": [_change("a")]}, _ids()))
    directory.rmdir()
    await reporter.collect()
    assert len(reporter._unspooled) == 1
    directory.mkdir()
    await reporter.collect()
    assert reporter._unspooled == []
    assert len(spool) == 1


def test_changes_not_delivered_are_recalled_in_their_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000_000)
    spool.open()
    rounds: list[list[Record]] = [[_change("a"), _change("b", "i1")], [_change("a", "i2", based_on=1)]]
    for changes in rounds:
        (batch,) = encode_batches("router-0", {"bindings": changes}, _ids())
        spool.append(batch.cargo, batch.records, batch.content)
    spool.append(Cargo.HISTORY, 1, b"not json")
    assert list(spooled_changes(spool)) == [*rounds[0], *rounds[1]]
