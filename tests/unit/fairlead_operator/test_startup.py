"""An operator that starts before the Kubernetes API, and one that stops while the Lease is lost."""

import asyncio
import itertools
import logging
import signal
from functools import partial

import kopf
import pytest

from fairlead_operator.cluster import ClusterUnavailable
from fairlead_operator.health import Health
from fairlead_operator.main import lead_once
from fairlead_operator.metrics import OperatorMetrics
from fairlead_operator.settings import read_settings
from fairlead_operator.startup import lead, wait_for_kubernetes
from fairlead_operator.watch_streams import EndlessPauses
from fairlead_process.logs import LogLines
from fairlead_testing.worlds.virtual_time import run_virtually, virtual_now

SETTINGS = {"FAIRLEAD_API_URL": "http://api:8080/", "FAIRLEAD_API_TOKEN": "t"}


class AwayUntil:
    """A cluster that answers after `back` virtual seconds, and has our CRDs after `installed`."""

    def __init__(self, back: float, installed: float) -> None:
        self.back, self.installed = back, installed

    async def serves_pools(self) -> bool:
        if virtual_now() < self.back:
            raise ClusterUnavailable("connection refused")
        return virtual_now() >= self.installed


def test_pauses_grow_and_never_end() -> None:
    assert list(itertools.islice(EndlessPauses(), 7)) == [1, 2, 4, 8, 15, 15, 15]


def test_an_outage_of_ten_minutes_at_start_is_waited_for_and_a_missing_crd_too(caplog: pytest.LogCaptureFixture) -> None:
    health = Health()

    async def story() -> float:
        await wait_for_kubernetes(AwayUntil(600, 700), health)
        return virtual_now()

    with caplog.at_level(logging.WARNING):
        assert 700 <= run_virtually(story()) < 715
    assert health.waiting_for == ""
    lines = [LogLines(as_json=False).format(record).partition(" waiting ")[2] for record in caplog.records]
    assert lines[0] == 'for="the Kubernetes API; connection refused" next_look_seconds=1.0'
    assert lines[-1] == 'for="the CRDs inferencepools and inferencepoolroles.fairlead.dev; apply crds/" next_look_seconds=15.0'
    assert len(lines) < 60


class Election:
    """An election that loses the Lease once `lost` is set."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    async def lead(self) -> None:
        await self.lost.wait()


@pytest.mark.parametrize("is_lost_first", [True, False])
def test_a_signal_ends_the_process_also_while_the_lease_is_lost(monkeypatch: pytest.MonkeyPatch, is_lost_first: bool) -> None:
    async def leading(memo: kopf.Memo) -> None:
        election = Election()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, bool)  # kopf has a handler too
        task = asyncio.create_task(lead(election, memo))
        await turns()
        for happens in (election.lost.set, partial(signal.raise_signal, signal.SIGTERM))[:: 1 if is_lost_first else -1]:
            happens()
            await turns()
        await task

    monkeypatch.setattr(kopf, "run", lambda *, memo, **_: asyncio.run(leading(memo)))
    assert not lead_once(read_settings(SETTINGS), OperatorMetrics())


async def turns() -> None:
    """Let the event loop run everything that is due."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_an_operator_that_only_lost_its_lease_goes_on_as_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    def kopf_run(*, memo: kopf.Memo, **_: object) -> None:
        election = Election()
        election.lost.set()
        asyncio.run(lead(election, memo))

    monkeypatch.setattr(kopf, "run", kopf_run)
    assert lead_once(read_settings(SETTINGS), OperatorMetrics())
