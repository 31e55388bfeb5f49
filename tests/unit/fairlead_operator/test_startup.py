"""Starting before the Kubernetes API does."""

import itertools
import logging

import pytest

from fairlead_operator.cluster import ClusterUnavailable
from fairlead_operator.health import Health
from fairlead_operator.startup import wait_for_kubernetes
from fairlead_operator.watch_streams import EndlessPauses
from fairlead_process.logs import LogLines
from fairlead_testing.worlds.virtual_time import run_virtually, virtual_now


class AwayUntil:
    """A cluster that answers after `back` virtual seconds and knows our resource after `installed`."""

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
