"""Computes the signals with which the operator scales a pool, from routers' reports about the pool.

Pure. Rates and loads cover a window of WINDOW_SECONDS that ended LAG_SECONDS ago, so that every router has reported the
whole window. Figures that describe requests (cached share, mean output, mean context) cover the same window if enough
requests finished in it, otherwise the last 5 minutes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt

from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.pools import TableFacts
from fairlead.reports.rejections import FOR_DECODE, FOR_PREFILL
from fairlead.scaling.signals import ENOUGH_FINISHED, DecodeStep, PoolSignals, RoleSignals, mean_output_tokens

WINDOW_SECONDS = 30
LAG_SECONDS = 2
"""Seconds after which all routers have sent the samples of a second."""

_ENOUGH_BUCKETS = 6
"""Minimum number of 10-s buckets with a measured decode step from which the step time is fitted."""
_LEAST_SPREAD = 0.1
"""Minimum standard deviation of batch sizes, as a share of their mean, for a fit of the step time. With less variation,
the measured times say nothing about larger batches.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Sums over finished requests. `generated_tokens` also counts the tokens of running requests (0 if routers do not
    report them).
    """

    requests: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    output_tokens: int = 0
    generated_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """Requests that arrived for the pool in the window, and the number of refused requests by reason."""

    requests: int
    prompt_tokens: int
    refused: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Variation of the lengths of arriving prompts, from those routers that report the sum of squared lengths."""

    requests: int = 0
    tokens: int = 0
    squares: int = 0

    @property
    def variation(self) -> float | None:
        """The standard deviation of the prompts' lengths divided by their mean; None if there are too few prompts."""
        if self.requests < ENOUGH_FINISHED or not self.tokens:
            return None
        return sqrt(max(0.0, self.squares * self.requests / self.tokens**2 - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceMeasures:
    """Measurements of one instance in the signals' window, over all routers.

    `unreported` counts samples from routers that do not report the needed fields. `newest` is the Unix time of the
    instance's newest sample. `pending_mean` and `pending` are the mean and latest number of uncached prompt tokens;
    `running_mean` is the mean number of running requests.
    """

    instance: str
    newest: float
    unreported: int
    pending_mean: float
    pending: int
    running_mean: float
    prefilled_tokens: int
    prefilling_seconds: float
    tpot_mean: float | None
    ttft_within_slo: int
    ttft_total: int
    tpot_within_slo: int
    tpot_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSums:
    """Sums over buckets of one instance, for a fit of the step time. `y` is the time per output token in seconds (95th
    percentile) of requests that ended in the bucket, `b` the mean number of requests that ran while those requests
    decoded.
    """

    instance: str
    n: int
    b: float
    y: float
    bb: float
    by: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMeasures:
    """All measurements of one pool, read at once."""

    instances: tuple[InstanceMeasures, ...]
    steps: tuple[StepSums, ...]
    arrived: Arrived
    prompts: Prompts
    window: Finished
    longer: Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentInstance:
    """An instance that exists now, with the numbers of its requests that are in flight and waiting in live routers."""

    id: str
    role: Role
    state: InstanceState
    in_flight: int
    waiting: int


def pool_signals(measured: PoolMeasures, present: Sequence[PresentInstance], facts: TableFacts, now: float) -> PoolSignals | None:
    """Return the scaling signals of each role that has instances; None if routers do not report enough to determine the
    demand.
    """
    if not measured.instances or any(instance.unreported for instance in measured.instances):
        return None
    roles = [role for role in Role if any(instance.role is role for instance in present)]
    return PoolSignals(
        window_seconds=WINDOW_SECONDS,
        age_seconds=max(0.0, now - max(instance.newest for instance in measured.instances)),
        roles=tuple(_role(role, measured, present, facts) for role in roles),
    )


def _role(role: Role, measured: PoolMeasures, present: Sequence[PresentInstance], facts: TableFacts) -> RoleSignals:
    mine = [instance for instance in present if instance.role is role]
    ids = {instance.id for instance in mine}
    samples = [one for one in measured.instances if one.instance in ids]
    serving = {instance.id for instance in mine if instance.state in ACCEPTING}
    prefills, decodes = role is not Role.DECODE, role is not Role.PREFILL
    finished = measured.window if measured.window.requests >= ENOUGH_FINISHED or not measured.longer.requests else measured.longer
    mean_output = mean_output_tokens(finished.requests, finished.output_tokens, finished.generated_tokens)
    throughput = _throughput(samples) if prefills else None
    step = decode_step([one for one in measured.steps if one.instance in ids]) if decodes else None
    of_serving = [one for one in samples if one.instance in serving]
    refused, arrived = measured.arrived.refused, measured.arrived.requests
    ttft_total = sum(one.ttft_total for one in samples) + sum(refused.values())
    for_prefill, for_decode = (sum(refused.get(reason, 0) for reason in reasons) for reasons in (FOR_PREFILL, FOR_DECODE))
    return RoleSignals(
        role=role,
        serving=len(serving),
        in_flight=sum(instance.in_flight for instance in mine),
        waiting=sum(instance.waiting for instance in mine),
        prompt_tokens_per_second=measured.arrived.prompt_tokens / WINDOW_SECONDS,
        requests_per_second=arrived / WINDOW_SECONDS,
        finished_requests=finished.requests,
        prompt_variation=measured.prompts.variation,
        cached_share=finished.hit_tokens / finished.prompt_tokens if finished.prompt_tokens else None,
        output_tokens_per_second=measured.arrived.requests * mean_output / WINDOW_SECONDS,
        prefill_tokens_per_second=throughput,
        pending_prefill_tokens=sum(one.pending for one in samples) if prefills else 0,
        decode_step=step,
        decode_context_tokens=(finished.prompt_tokens + finished.output_tokens / 2) / finished.requests if finished.requests else None,
        prefill_load=_prefill_load(of_serving, throughput, facts.slo.ttft_seconds) if prefills else None,
        decode_load=_decode_load(of_serving, step, facts.slo.tpot_seconds) if decodes else None,
        refused_share=_share(min(arrived, prefills * for_prefill + decodes * for_decode), arrived),
        ttft_attainment=_share(sum(one.ttft_within_slo for one in samples), ttft_total) if prefills else None,
        tpot_attainment=_share(sum(one.tpot_within_slo for one in samples), sum(one.tpot_total for one in samples)) if decodes else None,
    )


def _throughput(samples: Sequence[InstanceMeasures]) -> float | None:
    """Return the prompt tokens per second that an instance computes while it has prompts to compute; None if not
    measured.

    With little work the figure is imprecise, but then it matters little. The busy times that several routers report may
    overlap, so each instance's busy time is limited to the length of the window.
    """
    seconds = sum(min(float(WINDOW_SECONDS), one.prefilling_seconds) for one in samples)
    tokens = sum(one.prefilled_tokens for one in samples)
    return tokens / seconds if seconds > 0 and tokens else None


def _prefill_load(samples: Sequence[InstanceMeasures], throughput: float | None, slo_seconds: float) -> float | None:
    """Return the predicted duration of the pending prefill divided by the TTFT target. None if prompts are pending and
    no speed was measured.
    """
    pending = _mean([one.pending_mean for one in samples])
    if not pending:
        return pending
    return None if throughput is None else pending / throughput / slo_seconds


def _decode_load(samples: Sequence[InstanceMeasures], step: DecodeStep | None, slo_seconds: float) -> float | None:
    """Return the time per token that the fitted step time predicts for the present batches, divided by the TPOT target.
    Without a fit, the measured time per token is used.
    """
    if step is not None:
        return _mean([(step.fixed_seconds + step.seconds_per_request * one.running_mean) / slo_seconds for one in samples])
    return _mean([one.tpot_mean / slo_seconds for one in samples if one.tpot_mean is not None])


def decode_step(sums: Sequence[StepSums]) -> DecodeStep | None:
    """Fit the step time as a line over the batch size, by least squares; None if too few or too similar batches were
    measured.

    The slope includes the effect of the mean context, which changes slowly compared with the batch size.
    """
    n = sum(one.n for one in sums)
    if n < _ENOUGH_BUCKETS:
        return None
    b, y, bb, by = (fsum(values) for values in zip(*((one.b, one.y, one.bb, one.by) for one in sums), strict=True))
    spread = n * bb - b * b
    if b <= 0 or spread <= (_LEAST_SPREAD * b) ** 2:
        return None
    slope = max(0.0, (n * by - b * y) / spread)
    fixed = (y - slope * b) / n
    if fixed < 0:
        slope, fixed = by / bb, 0.0
    return DecodeStep(fixed_seconds=fixed, seconds_per_request=slope, seconds_per_context_token=0.0)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None
