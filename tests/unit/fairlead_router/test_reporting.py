"""Batching, spooling and sending reports; above all: nothing lost, nothing stored twice, wherever a process dies."""

import asyncio
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.reports import BindingChange, BindingReason, RejectionReason, RejectionRecord, Report, ReportReceipt
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pools import Pools
from fairlead_router.reporting import BATCH_RECORDS, Record, Reporter, encode_batches, spooled_bindings
from fairlead_router.spool import Cargo, Spool
from fake_control_api import CHAT


def _change(session: str, instance: str = "i0", based_on: int = 0) -> BindingChange:
    return BindingChange(pool=CHAT, session=session, instance=instance, reason=BindingReason.COLD, at=1.0, based_on=based_on)


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

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.posts += 1
        if self.behaviour == "unreachable":
            raise httpx.ConnectError("refused", request=request)
        if self.behaviour == "busy":
            return httpx.Response(503)
        if self.behaviour == "refuse":
            return httpx.Response(422)
        if request.url.path == "/internal/v1/routers/gone":
            return httpx.Response(204)
        report = msgspec.json.decode(request.content, type=Report)
        duplicate = report.id in self.stored
        self.stored.setdefault(report.id, report)
        if self.behaviour == "lose-answer":
            raise httpx.ReadError("reset", request=request)
        return httpx.Response(200, content=msgspec.json.encode(ReportReceipt(id=report.id, duplicate=duplicate)))

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
            elif (oldest := spool.oldest()) is not None:
                content = oldest.path.read_bytes()
                api.behaviour = "take" if step == "die-after-answer" else step
                taken = await reporter.deliver(oldest)
                assert taken == (step in ("take", "die-after-answer"))
                if step == "die-after-answer":
                    oldest.path.write_bytes(content)  # it died before the file was removed
                    reporter, spool, _ = _reporter(directory, api)
        api.behaviour = "take"
        await _reporter(directory, api)[0].finish(5.0)
        assert api.sessions() == written
        assert list(directory.iterdir()) == []


async def test_a_batch_the_api_refuses_for_ever_is_dropped_and_counted(tmp_path: Path) -> None:
    api = Api()
    reporter, spool, metrics = _reporter(tmp_path, api)
    (batch,) = encode_batches("router-0", {"bindings": [_change("a"), _change("b")]}, _ids())
    spool.append(batch.cargo, batch.records, batch.content)
    api.behaviour = "refuse"
    oldest = spool.oldest()
    assert oldest is not None
    assert await reporter.deliver(oldest)
    assert len(spool) == 0
    assert metrics.report_drops == {"history": 2}


async def test_the_state_of_the_moment_goes_with_a_batch_however_old_it_is(tmp_path: Path) -> None:
    api = Api()
    reporter, spool, _ = _reporter(tmp_path, api)
    (batch,) = encode_batches("router-0", {"bindings": [_change("a")]}, _ids())
    spool.append(batch.cargo, batch.records, batch.content)
    await reporter.finish(5.0)
    (report,) = api.stored.values()
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


def test_bindings_not_delivered_are_recalled_at_the_version_they_were_based_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000_000)
    spool.open()
    rounds: list[list[Record]] = [[_change("a"), _change("b", "i1")], [_change("a", "i2", based_on=1)]]
    for changes in rounds:
        (batch,) = encode_batches("router-0", {"bindings": changes}, _ids())
        spool.append(batch.cargo, batch.records, batch.content)
    spool.append(Cargo.HISTORY, 1, b"not json")
    recalled = {binding.session: (binding.instance, binding.version) for binding in spooled_bindings(spool)}
    assert recalled == {"a": ("i2", 1), "b": ("i1", 0)}
