"""Load samples: the work of each instance in each second, as one router observed it, and the pool's arrivals."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest

from fairlead.reports.arrivals import ArrivalSample
from fairlead.reports.loads import LoadSample
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.tables import PoolKey, SloFacts
from fairlead.targets import instance_of, rank_of

LATENCIES_PER_SECOND = 64
"""Maximum number of latencies kept per instance and second; if there are more, a uniform sample is kept."""


@dataclass(slots=True)
class Reservoir:
    """A uniform sample of at most `LATENCIES_PER_SECOND` of the values added. The same values in the same order give
    the same sample.
    """

    values: list[float] = field(default_factory=list)
    seen: int = 0

    def add(self, value: float) -> None:
        """Add a value."""
        self.seen += 1
        if len(self.values) < LATENCIES_PER_SECOND:
            self.values.append(value)
            return
        place = xxh3_64_intdigest(self.seen.to_bytes(8, "little"), len(self.values)) % self.seen
        if place < LATENCIES_PER_SECOND:
            self.values[place] = value


@dataclass(slots=True)
class SecondOfLoad:
    """The current second of one instance: its counters, and its gauges after the last event."""

    second: int
    running: int = 0
    waiting: int = 0
    pending_prefill_tokens: int = 0
    kv_usage: float | None = None
    requests: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    output_tokens: int = 0
    ttft_within_slo: int = 0
    tpot_within_slo: int = 0
    within_slo: int = 0
    judged_by_slo: int = 0
    prefilled_tokens: int = 0
    prefilling_seconds: float = 0.0
    generated_tokens: int = 0
    prefills_since: float | None = None
    """Time up to which the instance's prefill time has been added to its samples; None while the instance does not
    prefill.
    """
    ttft: Reservoir = field(default_factory=Reservoir)
    tpot: Reservoir = field(default_factory=Reservoir)


def _judge(second: SecondOfLoad, ttft_seconds: float, tpot_seconds: float | None, slo: SloFacts) -> None:
    second.judged_by_slo += 1
    second.within_slo += ttft_seconds < slo.ttft_seconds and (tpot_seconds is None or tpot_seconds < slo.tpot_seconds)


class LoadSeconds:
    """Collects load figures of each instance, second by second.

    A second is finished at the first event or call of `take` after its end. Nothing is collected unless `kept`.
    """

    def __init__(self, pool: PoolKey, limit: int, *, kept: bool = True) -> None:
        self._pool = pool
        self._limit = limit
        self._kept = self._wanted = kept
        self._running: dict[str, SecondOfLoad] = {}
        self._finished: list[LoadSample] = []
        self._last_second: dict[str, int] = {}
        self._prefilling_since: dict[str, float] = {}
        """For each instance that prefills but has no current second: the time up to which its prefill time has been
        added to its samples.
        """
        self._arrivals: dict[int, tuple[int, int, int]] = {}
        """For each second: the number of requests, their prompt tokens, and the sum of the squares of their prompt
        tokens.
        """
        self.dropped = 0

    def pause(self) -> None:
        """Collect only arrivals from now on, because another router collects the work of the instances."""
        for instance in tuple(self._running):
            self._finish(instance, self._running.pop(instance))
        self._prefilling_since.clear()
        self._kept = False

    def resume(self) -> None:
        """Collect everything again."""
        self._kept = self._wanted

    def arrived(self, prompt_tokens: int, now: float) -> None:
        """Count a request that arrived for the pool, whatever its outcome."""
        if not self._wanted:
            return
        second = int(now)
        requests, tokens, squares = self._arrivals.get(second, (0, 0, 0))
        if requests or len(self._arrivals) < self._limit:
            self._arrivals[second] = (requests + 1, tokens + prompt_tokens, squares + prompt_tokens**2)
        else:
            self.dropped += 1

    def dispatched(self, load: InstanceLoad, now: float) -> None:
        """Record that a request was sent to the instance."""
        if self._kept:
            self._current(load, now).requests += 1

    def first_token(self, load: InstanceLoad, now: float, ttft_seconds: float, target_seconds: float) -> None:
        """Record a first token from the instance."""
        if self._kept:
            second = self._current(load, now)
            second.ttft.add(ttft_seconds)
            second.ttft_within_slo += ttft_seconds < target_seconds

    def prefilled(self, load: InstanceLoad, now: float, tokens: int) -> None:
        """Count the uncached tokens of a prompt that the instance has computed."""
        if self._kept:
            self._current(load, now).prefilled_tokens += tokens

    def generated(self, load: InstanceLoad, now: float, tokens: int) -> None:
        """Count further output tokens that the instance has generated."""
        if self._kept:
            self._current(load, now).generated_tokens += tokens

    def completed(
        self,
        prefilled_on: InstanceLoad,
        decoded_on: InstanceLoad,
        now: float,
        *,
        prompt_tokens: int,
        hit_tokens: int,
        output_tokens: int,
        more_tokens: int,
        ttft_seconds: float | None,
        tpot_seconds: float | None,
        slo: SloFacts,
    ) -> None:
        """Record that a request was completed. `more_tokens` is the part of `output_tokens` that `generated` had not
        reported. The latencies are None if the first token could not be observed.
        """
        if not self._kept:
            return
        second = self._current(prefilled_on, now)
        second.prompt_tokens += prompt_tokens
        second.hit_tokens += hit_tokens
        if prefilled_on is not decoded_on:
            second = self._current(decoded_on, now)
        second.completed += 1
        second.output_tokens += output_tokens
        second.generated_tokens += more_tokens
        if tpot_seconds is not None:
            second.tpot.add(tpot_seconds)
            second.tpot_within_slo += tpot_seconds < slo.tpot_seconds
        if ttft_seconds is not None:
            _judge(second, ttft_seconds, tpot_seconds, slo)

    def failed(self, load: InstanceLoad, now: float) -> None:
        """Record that the instance failed a request."""
        if self._kept:
            self._current(load, now).failed += 1

    def cancelled(self, load: InstanceLoad, now: float) -> None:
        """Record that a request for the instance was cancelled."""
        if self._kept:
            self._current(load, now).cancelled += 1

    def judged(self, load: InstanceLoad, now: float, ttft_seconds: float, tpot_seconds: float | None, slo: SloFacts) -> None:
        """Record whether a request that ended before its answer was complete met the objectives, as far as its
        latencies are known.
        """
        if self._kept:
            _judge(self._current(load, now), ttft_seconds, tpot_seconds, slo)

    def _current(self, load: InstanceLoad, now: float) -> SecondOfLoad:
        """Return the current second of the instance. Its gauges are updated, and the time spent on prefills since the
        last update is added.
        """
        running = self._running.get(load.entry.id)
        if running is None or now >= running.second + 1:
            running = self._running[load.entry.id] = self._begin(load.entry.id, running, int(now))
        prefilling = load.prefilling
        running.running = prefilling + load.decoding
        running.waiting = load.waiting
        running.pending_prefill_tokens = load.pending_prefill_tokens
        running.kv_usage = load.kv_usage
        since = running.prefills_since
        if since is not None and now > since:
            running.prefilling_seconds += now - since
        running.prefills_since = now if prefilling else None
        return running

    def _begin(self, instance: str, before: SecondOfLoad | None, second: int) -> SecondOfLoad:
        if before is not None:
            self._finish(instance, before)
        return SecondOfLoad(second, prefills_since=self._prefilling_since.pop(instance, None))

    def take(self, loads: Mapping[str, InstanceLoad], now: float, *, final: bool) -> tuple[LoadSample, ...]:
        """Return the finished seconds; with `final`, also the current second. For an instance without events since the
        last call, the result has one sample: its gauges in the last full second.
        """
        if not self._wanted:
            return ()
        second = int(now)
        for instance in tuple(self._running):
            if self._running[instance].second < second or final:
                self._finish(instance, self._running.pop(instance))
        for instance, load in loads.items() if self._kept else ():
            if instance not in self._running and self._last_second.get(instance, -1) < second - 1:
                self._current(load, now).second = second - 1
                self._finish(instance, self._running.pop(instance))
        for instance in self._last_second.keys() - loads.keys() - self._running.keys():
            del self._last_second[instance]
            self._prefilling_since.pop(instance, None)
        taken, self._finished = tuple(self._finished), []
        return taken

    def take_arrivals(self, now: float, *, final: bool) -> tuple[ArrivalSample, ...]:
        """Return the finished seconds in which requests arrived; with `final`, also the current second."""
        ready = sorted(second for second in self._arrivals if second < int(now) or final)
        counts = [(second, *self._arrivals.pop(second)) for second in ready]
        return tuple(
            ArrivalSample(pool=self._pool, second=second, requests=requests, prompt_tokens=tokens, prompt_tokens_squared=squares)
            for second, requests, tokens, squares in counts
        )

    def _finish(self, instance: str, running: SecondOfLoad) -> None:
        self._last_second[instance] = running.second
        if running.prefills_since is not None:
            self._prefilling_since[instance] = running.prefills_since
        if len(self._finished) >= self._limit:
            self.dropped += 1
            return
        self._finished.append(
            LoadSample(
                pool=self._pool,
                instance=instance_of(instance),
                rank=rank_of(instance),
                second=running.second,
                running=running.running,
                waiting=running.waiting,
                pending_prefill_tokens=running.pending_prefill_tokens,
                in_flight=running.running + running.waiting,
                kv_usage=running.kv_usage,
                requests=running.requests,
                completed=running.completed,
                failed=running.failed,
                cancelled=running.cancelled,
                prompt_tokens=running.prompt_tokens,
                hit_tokens=running.hit_tokens,
                output_tokens=running.output_tokens,
                ttft_seconds=tuple(running.ttft.values),
                tpot_seconds=tuple(running.tpot.values),
                ttft_within_slo=running.ttft_within_slo,
                ttft_total=running.ttft.seen,
                tpot_within_slo=running.tpot_within_slo,
                tpot_total=running.tpot.seen,
                within_slo=running.within_slo,
                judged_by_slo=running.judged_by_slo,
                prefilled_tokens=running.prefilled_tokens,
                prefilling_seconds=running.prefilling_seconds,
                generated_tokens=running.generated_tokens,
            )
        )
