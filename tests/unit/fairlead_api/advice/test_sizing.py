"""Which pools are simulated for advice, and when."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fairlead.advice.situations import PoolSituation, SeenSizing
from fairlead.capabilities import NOTHING_KNOWN, EngineCapability, Figure, Source
from fairlead.instances import Role
from fairlead.pools import parse_spec
from fairlead.reports.rejections import RejectionReason
from fairlead.tables import PoolKey
from fairlead_api.advice.asking import Situations
from fairlead_api.advice.sizing import AGAIN_SECONDS, Sizing, is_due
from fairlead_api.simulations.asking import PoolAtPresent
from fairlead_api.simulations.sizing import SizingTrial
from fairlead_testing.builders.situations import arriving, well

NOW = datetime(2026, 11, 29, tzinfo=UTC)
REFUSING = well(refused={RejectionReason.PREDICTED_TTFT.value: 660}, signals=arriving(5200))
SPEC = {"model": "m", "replicas": 4, "engine": {"prefillTokensPerSecond": 6250}}


class Store:
    """A store with a pool of four instances and this many recorded requests, this many a second."""

    def __init__(self, requests: int, rate: float, capability: EngineCapability = NOTHING_KNOWN) -> None:
        self._requests = requests
        self._rate = rate
        self.added: list[SizingTrial] = []
        self.pool = PoolAtPresent(facts=parse_spec(SPEC).facts(), instances={Role.BOTH: 4}, capability=capability)

    async def present(self, pool: PoolKey, now: datetime) -> PoolAtPresent:
        return self.pool

    async def recorded(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> int:
        return min(most, self._requests)

    async def recorded_seconds(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> float:
        return min(most, self._requests) / self._rate

    async def add_sizing(self, trial: SizingTrial, now: datetime) -> None:
        self.added.append(trial)


class Seen:
    def __init__(self, *pools: PoolSituation) -> None:
        self._pools = pools

    async def situations(self, pool: PoolKey | None, now: datetime) -> Situations:
        return Situations(window_seconds=300.0, pools=self._pools)


async def looked(
    *pools: PoolSituation,
    requests: int = 3000,
    rate: float = 1.0,
    enabled: bool = True,
    capability: EngineCapability = NOTHING_KNOWN,
    changed_at: datetime | None = None,
) -> list[SizingTrial]:
    store, numbers = Store(requests, rate, capability), iter(range(100))
    store.pool = replace(store.pool, changed_at=changed_at)
    await Sizing(Seen(*pools), store, lambda: str(next(numbers)), enabled=enabled).look(NOW)
    return store.added


async def test_a_pool_that_refuses_is_simulated_with_the_speed_that_its_instances_showed() -> None:
    (trial,) = await looked(REFUSING, well("default/other"))
    assert (trial.pool, trial.refusal, trial.asked.present, trial.asked.estimate) == (PoolKey.parse("default/chat"), None, 4, 7)
    assert trial.target is not None
    assert trial.target.prefill_tokens_per_second == 1000.0, "declared are 6,250"
    assert [one.change.replicas for one in trial.runs if one.change] == [None, None, 6, 7, 8, 12, 20, 32]
    (host,) = [one for one in trial.runs if one.host_cache_tokens is not None]
    assert (host.host_cache_tokens, host.change) == (4 * trial.target.kv_cache_tokens, None)


@pytest.mark.parametrize("source", [Source.MEASURED, Source.FITTED])
async def test_advice_asks_for_what_was_measured_then_for_what_was_fitted_and_never_for_a_declared_speed(source: Source) -> None:
    known = EngineCapability(prefill_tokens_per_second=Figure(value=20_000.0, source=source, samples=41, age_seconds=20.0))
    (idle,) = await looked(replace(REFUSING, signals=None), capability=known)
    assert idle.target is not None
    assert (idle.target.prefill_tokens_per_second, idle.asked.prefill_tokens_per_second) == (20_000.0, 20_000.0)
    (busy,) = await looked(REFUSING, capability=known)
    assert busy.asked.prefill_tokens_per_second == (20_000.0 if source is Source.MEASURED else 1000.0), "seen of late goes before a fit"
    (unknown,) = await looked(replace(REFUSING, signals=None))
    assert unknown.asked.prefill_tokens_per_second is None, "no prompt is said to be too long by what is declared"


@pytest.mark.parametrize(
    ("requests", "enabled", "words"),
    [(199, True, "199 requests were recorded in the hour until 00:00 UTC, and 200 are needed"), (3000, False, "simulates nothing")],
)
async def test_why_nothing_is_simulated_is_kept_with_the_estimate_of_that_moment(requests: int, enabled: bool, words: str) -> None:
    (trial,) = await looked(REFUSING, requests=requests, enabled=enabled)
    assert words in str(trial.refusal)
    assert trial.asked.estimate == 7


@pytest.mark.parametrize(
    ("minutes", "requests", "refusal"),
    [
        (None, 3000, None),
        (90, 3000, None),
        (7, 3000, None),
        (7, 12, "12 requests were recorded since 23:53 UTC, when the pool got its present spec, and 200 are needed"),
    ],
)
async def test_requests_from_before_the_last_change_of_the_spec_are_not_taken_for_those_of_the_pool_as_it_is(
    minutes: int | None, requests: int, refusal: str | None
) -> None:
    changed_at = None if minutes is None else NOW - timedelta(minutes=minutes)
    (trial,) = await looked(REFUSING, requests=requests, changed_at=changed_at)
    assert trial.window == (NOW - timedelta(minutes=min(minutes or 60, 60)), NOW)
    assert trial.refusal == refusal


def test_a_pool_is_simulated_again_after_some_minutes_and_not_before() -> None:
    def due(**changes: object) -> bool:
        sizing = SeenSizing(**{"role": Role.BOTH, "age_seconds": 20.0, **changes})  # type: ignore[arg-type]
        return is_due(replace(REFUSING, sizing=sizing))

    assert not is_due(well())
    assert is_due(REFUSING)
    assert not due(is_underway=True)
    assert not due(reason="too few requests")
    assert due(age_seconds=AGAIN_SECONDS)
    assert due(), "what was found is of other targets"


async def test_a_pool_of_many_requests_a_second_is_simulated_for_as_long_as_any_other() -> None:
    (usual,) = await looked(REFUSING, requests=100_000, rate=30.0)
    (busy,) = await looked(REFUSING, requests=100_000, rate=100.0)
    (busiest,) = await looked(REFUSING, requests=100_000, rate=500.0)
    assert (usual.asked.requests, usual.refusal) == (5_000, None)
    assert (busy.asked.requests, busy.refusal) == (20_000, None)
    assert busiest.refusal == "the newest 20000 requests came within 40 s, and 120 s are needed"
