"""Measures the signals that scaling needs on a simulated pool, as the control API measures them on a real pool.

Rates, loads and attainment are measured over the last `WINDOW_SECONDS`. Figures about the engine and the workload
(throughput, cached share, lengths) are measured over the last `MEMORY_SECONDS`, because they need more requests.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from math import inf, sqrt

from fairlead.capabilities import UNKNOWN, Figure, Source, recalled
from fairlead.instances import Role
from fairlead.reports.rejections import FOR_DECODE, FOR_PREFILL, RejectionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.scaling.signals import ENOUGH_FINISHED, DecodeStep, PoolSignals, RoleSignals, mean_output_tokens
from fairlead_simulator.engine_model.presets import EnginePreset
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.pools import SimulatedPool

WINDOW_SECONDS = 30.0
MEMORY_SECONDS = 300.0


class RollingSums:
    """Sums, each with a name, of the amounts that were added in the last `seconds` seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._added: deque[tuple[float, dict[str, float]]] = deque()
        self._sums: dict[str, float] = {}
        self._begun_at: float | None = None

    def add(self, now: float, **amounts: float) -> None:
        """Add an amount to each of the named sums."""
        if self._begun_at is None:
            self._begun_at = now
        self._added.append((now, amounts))
        for name, amount in amounts.items():
            self._sums[name] = self._sums.get(name, 0.0) + amount

    def forget(self, now: float) -> None:
        """Drop the amounts that are older than the window."""
        while self._added and self._added[0][0] <= now - self._seconds:
            for name, amount in self._added.popleft()[1].items():
                self._sums[name] -= amount

    def rate(self, name: str, now: float) -> float:
        """Return the named sum divided by the seconds of the window, or by the seconds since the first amount was added
        if these are fewer; 0 without an amount.
        """
        seconds = min(self._seconds, now - self._begun_at) if self._begun_at is not None else 0.0
        return self.total(name) / seconds if seconds > 0 else 0.0

    def total(self, name: str) -> float:
        """Return the named sum. Rounding errors that would make it negative are corrected to 0."""
        return max(0.0, self._sums.get(name, 0.0))

    def mean(self, name: str, of: str) -> float | None:
        """Return the sum `name` divided by the sum `of`; None while the sum `of` is 0."""
        return self.total(name) / self.total(of) if self.total(of) > 1e-9 else None


class SignalMeter:
    """Measures the signals that scaling needs, from every request and every sample of a run."""

    def __init__(self, pool: SimulatedPool) -> None:
        self._pool = pool
        self._preset: EnginePreset = pool.preset
        self._recent = RollingSums(WINDOW_SECONDS)
        self._long = RollingSums(MEMORY_SECONDS)
        self._generated: dict[int, int] = {}
        """Index of a running job → number of its output tokens counted so far."""
        self._speed: Figure = UNKNOWN
        self._speed_at = 0.0
        """Time at which the prefill speed was last measured."""
        self._prefills = 0

    def arrived(self, job: Job, now: float) -> None:
        """Count a request that arrived at a router, whatever happens to it later."""
        self._recent.add(now, requests=1, prompt=job.input_tokens)
        self._long.add(now, asked=1, asked_tokens=job.input_tokens, asked_squares=job.input_tokens**2)

    def refused(self, job: Job, now: float, reason: RejectionReason) -> None:
        """Count a refused request as a request that missed the TTFT target. If its first token was counted as in time
        before, that count is taken back.
        """
        self._recent.add(now, refused_for_decode=reason in FOR_DECODE, refused_for_prefill=reason in FOR_PREFILL)
        if job.heard_first:
            self._recent.add(now, first_in_time=-self._is_in_time(job))
        else:
            self._recent.add(now, first=1)

    def first_token(self, job: Job, now: float) -> None:
        """Count the first token of a request, and the prompt tokens that were computed for it."""
        self._recent.add(now, first=1, first_in_time=self._is_in_time(job))
        self._long.add(now, computed=job.input_tokens - job.hit_tokens)
        self._prefills += 1

    def _is_in_time(self, job: Job) -> bool:
        return job.first_token_at - job.arrives_at < self._pool.slo_ttft_seconds

    def generated(self, job: Job, tokens: int, now: float) -> None:
        """Record that `tokens` tokens of the request's answer have been sent so far."""
        more = tokens - self._generated.get(job.index, 0)
        if more > 0:
            self._generated[job.index] = tokens
            for window in (self._recent, self._long):
                window.add(now, generated=more)

    def completed(self, job: Job, now: float) -> None:
        """Record that the request's last token was sent."""
        self.generated(job, job.output_tokens, now)
        for window in (self._recent, self._long):
            window.add(now, finished=1, finished_tokens=job.input_tokens, hit=job.hit_tokens, output=job.output_tokens)
        if job.output_tokens > 1:
            seconds = (job.finished_at - job.first_token_at) / (job.output_tokens - 1)
            self._recent.add(now, paced=1, paced_in_time=seconds <= self._pool.slo_tpot_seconds)

    def ended(self, job: Job) -> None:
        """Forget a request that has ended, whether served or not."""
        self._generated.pop(job.index, None)

    def sample(self, loads: Iterable[InstanceLoad], now: float) -> None:
        """Take a sample of the loads of all instances; call this about once a second."""
        for window in (self._recent, self._long):
            window.forget(now)
        speed = self._prefill_speed()
        if speed is not None:
            self._speed, self._speed_at = Figure(value=speed, source=Source.MEASURED, samples=self._prefills, age_seconds=0.0), now
        serving = [load for load in loads if load.entry.accepting]
        prefilling = [load for load in serving if load.entry.role is not Role.DECODE]
        decoding = [load for load in serving if load.entry.role is not Role.PREFILL]
        self._long.add(
            now,
            busy=sum(load.pending_prefill_tokens > 0 for load in prefilling),
            contexts=sum(load.decode_tokens for load in decoding),
            decodes=sum(load.decoding for load in decoding),
        )
        pending = any(load.pending_prefill_tokens for load in prefilling)
        if prefilling and (not pending or self._prefill_speed() is not None):
            self._recent.add(now, prefill_load=sum(map(self._prefill_load, prefilling)) / len(prefilling), prefill_samples=1)
        if decoding:
            self._recent.add(now, decode_load=sum(map(self._decode_load, decoding)) / len(decoding), decode_samples=1)

    def prefill_figure(self, now: float) -> Figure:
        """Return an instance's prefill speed in prompt tokens per second, as last measured. A pool without instances
        keeps the last measurement. The figure is unknown before the first measurement.
        """
        return recalled(self._speed, now - self._speed_at)

    def signals(self, loads: Sequence[InstanceLoad], now: float) -> PoolSignals:
        """Return the present signals of each role of the pool."""
        roles = [Role.BOTH] if self._pool.instances else [Role.PREFILL, Role.DECODE]
        return PoolSignals(
            window_seconds=WINDOW_SECONDS,
            age_seconds=0.0,
            roles=tuple(self._role(role, [load for load in loads if load.entry.role is role], now) for role in roles),
        )

    def _role(self, role: Role, loads: Sequence[InstanceLoad], now: float) -> RoleSignals:
        recent, long, decode = self._recent, self._long, self._preset.decode
        prefills, decodes = role is not Role.DECODE, role is not Role.PREFILL
        described = recent if recent.total("finished") >= ENOUGH_FINISHED else long
        cached = described.mean("hit", "finished_tokens")
        mean_output = mean_output_tokens(described.total("finished"), described.total("output"), described.total("generated"))
        return RoleSignals(
            role=role,
            serving=sum(load.entry.accepting for load in loads),
            in_flight=sum(load.waiting + load.prefilling + load.decoding for load in loads),
            waiting=sum(load.waiting for load in loads),
            prompt_tokens_per_second=recent.rate("prompt", now),
            requests_per_second=recent.rate("requests", now),
            finished_requests=round(described.total("finished")),
            prompt_variation=self._prompt_variation(),
            cached_share=None if cached is None else min(1.0, cached),
            output_tokens_per_second=recent.rate("requests", now) * mean_output,
            prefill_tokens_per_second=self._prefill_speed(),
            pending_prefill_tokens=sum(load.pending_prefill_tokens for load in loads),
            decode_step=DecodeStep(
                fixed_seconds=decode.fixed,
                seconds_per_request=decode.per_sequence,
                seconds_per_context_token=decode.per_context_token,
            ),
            decode_context_tokens=long.mean("contexts", "decodes"),
            prefill_load=recent.mean("prefill_load", "prefill_samples") if prefills else None,
            decode_load=recent.mean("decode_load", "decode_samples") if decodes else None,
            refused_share=self._refused_share(prefills, decodes),
            ttft_attainment=recent.mean("first_in_time", "first"),
            tpot_attainment=recent.mean("paced_in_time", "paced"),
        )

    def _refused_share(self, prefills: bool, decodes: bool) -> float | None:
        shares = (
            self._recent.mean("refused_for_prefill", "requests") if prefills else 0.0,
            self._recent.mean("refused_for_decode", "requests") if decodes else 0.0,
        )
        known = [share for share in shares if share is not None]
        return min(1.0, sum(known)) if len(known) == len(shares) else None

    def _prompt_variation(self) -> float | None:
        mean, square = self._long.mean("asked_tokens", "asked"), self._long.mean("asked_squares", "asked")
        return None if not mean or square is None else sqrt(max(0.0, square / mean**2 - 1))

    def _prefill_speed(self) -> float | None:
        """Return the measured prefill speed of an instance in tokens per second; None if nothing was measured."""
        return self._long.mean("computed", "busy") or None

    def _prefill_load(self, load: InstanceLoad) -> float:
        return load.pending_prefill_tokens / (self._prefill_speed() or inf) / self._pool.slo_ttft_seconds

    def _decode_load(self, load: InstanceLoad) -> float:
        """Return the decode load of an instance: the predicted duration of a decode step divided by the TPOT target. If
        the decoding requests need more than the KV memory, only a part of them is in each step. The duration is then
        that of a smaller step, multiplied by the number of steps after which each request has one token.
        """
        tokens, decode = load.decode_tokens, self._preset.decode
        fitting = min(1.0, self._preset.kv_tokens / tokens) if tokens else 1.0
        step = decode.fixed + fitting * (decode.per_context_token * tokens + decode.per_sequence * load.decoding)
        return step / fitting / self._pool.slo_tpot_seconds
