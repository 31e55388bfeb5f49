"""Times fitted online: the durations of prefills and decode steps are estimated from observations, and the error of
every prediction is recorded.

Models are linear in their coefficients and fitted by least squares to the last observations, with the pool's declared
figures as a prior. The same observations in the same order give the same coefficients. Only the last few hundred
observations of the last hour count, so a wrong fit does not last longer than an hour. The danger of fits is
extrapolation. Therefore a prediction is never zero or less, and differs from the prediction by the prefill speed
(`prefill_speeds`) by at most the factor `FURTHEST`.
"""

from collections import defaultdict
from dataclasses import replace
from math import inf, isfinite

import numpy as np

from fairlead.capabilities import REMEMBERED_SECONDS, UNKNOWN, Figure, Source, best, declared
from fairlead.routing.contracts.estimates import EstimateReport
from fairlead.routing.contracts.vectors import FloatVector, IntVector, misses
from fairlead.routing.knowledge.least_squares import LeastSquares
from fairlead.routing.knowledge.prefill_speeds import COMPARED_TOKENS, MEMORY_SECONDS, PrefillSpeeds, RecalledSpeed
from fairlead.routing.knowledge.whole_answers import WholeAnswers
from fairlead.tables import EngineFacts

FORMS = ("configured", "linear", "bilinear")
"""Forms of the prefill model. With x uncached tokens in a prompt of s tokens, the predicted seconds are: `configured` x
/ speed; `linear` c0 + c1·x; `bilinear` c0 + c1·x + c2·s + c3·x·s.
"""

MEMORY_OBSERVATIONS = 200
"""The weight of an observation in a mean falls to 1/e after this many further observations."""
KEPT = 1 - 1 / MEMORY_OBSERVATIONS

FURTHEST = 20.0
"""The largest factor by which a fitted prediction may be above or below the prediction from the speed."""


LONGEST_STEP_SECONDS = 10.0
"""Longest plausible decode step in seconds; a longer one means that the engine stood still."""
LONGEST_PREFILL_SECONDS = 600.0
"""Longest plausible prefill in seconds; a longer one means that the engine stood still."""
STEPS_OBSERVED = 24
"""Number of observations after which decode step times count as known. A fit to 24 observations is hardly better than
their mean, but in a full pool this mean is within 20 % of the true time. A larger number would be worse, because no
time is reserved for decodes until their step times are known.
"""
RECALLED_UNTIL = 100
"""Once a fit has this many observations, it no longer uses a recalled fit as its prior."""
MOST_TOKENS = 10_000_000.0
"""Upper bound for context tokens: more than any engine holds."""
MOST_REQUESTS = 100_000.0
"""Upper bound for requests that decode at the same time: more than on any engine."""


NO_STEP = (0.0, 0.0, 0.0)
"""The coefficients of an unknown decode step time."""


class _Mean:
    """A weighted mean of recent values. The mean is None before the first value."""

    __slots__ = ("sum", "weight")

    def __init__(self) -> None:
        self.sum = 0.0
        self.weight = 0.0

    @property
    def value(self) -> float | None:
        return self.sum / self.weight if self.weight else None

    def observe(self, value: float, weight: float = 1.0) -> None:
        self.sum = self.sum * KEPT + value * weight
        self.weight = self.weight * KEPT + weight


class _Observed:
    """The mean observed time per token, and the errors of two kinds of predictions of this time: by the measured figure
    and by the declared figure.

    Errors are relative to the total time, so that a single answer whose tokens arrived in a burst has little effect.
    """

    __slots__ = ("declared_error", "error", "observed_at", "samples", "seconds_per_token")

    def __init__(self) -> None:
        self.samples = 0
        self.observed_at = 0.0
        self.seconds_per_token = _Mean()
        self.error = _Mean()
        self.declared_error = _Mean()

    def observe(self, tokens: int, seconds: float, learnt: float | None, declared: float | None, now: float) -> None:
        """Add an observation: its tokens, its seconds, and the seconds predicted by the measured figure (`learnt`) and
        by the declared figure. None stands for a prediction that was not made.
        """
        self.samples += 1
        self.observed_at = now
        mean = self.seconds_per_token  # written out, as calls of `observe` would be ten for each streamed request
        mean.sum, mean.weight = mean.sum * KEPT + seconds, mean.weight * KEPT + tokens
        if learnt is not None:
            mean = self.error
            mean.sum, mean.weight = mean.sum * KEPT + abs(learnt - seconds), mean.weight * KEPT + seconds
        if declared is not None:
            mean = self.declared_error
            mean.sum, mean.weight = mean.sum * KEPT + abs(declared - seconds), mean.weight * KEPT + seconds

    def figure(self, now: float) -> Figure:
        """The mean as a measured figure; unknown before the first observation."""
        value = self.seconds_per_token.value
        if value is None:
            return UNKNOWN
        return Figure(value=value, source=Source.MEASURED, samples=self.samples, age_seconds=max(0.0, now - self.observed_at))

    def report(self, form: str, in_use: bool) -> EstimateReport:
        return EstimateReport(
            form=form,
            samples=self.samples,
            in_use=in_use,
            seconds_per_token=self.seconds_per_token.value,
            error=self.error.value,
            declared_error=self.declared_error.value,
        )


class _ObservedByInstance:
    """Observations of all instances together, and of each instance separately. Predictions use only the observations of
    all instances together.
    """

    def __init__(self) -> None:
        self.all = _Observed()
        self._each: defaultdict[str, _Observed] = defaultdict(_Observed)

    def observe(self, instance: str, tokens: int, seconds: float, learnt: float | None, declared: float | None, now: float) -> None:
        """Add an observation to the figure of the instance and to the figure of all instances. `learnt` is the
        prediction in seconds by the figure of all instances, `declared` the prediction by the declared figure.
        """
        self.all.observe(tokens, seconds, learnt, declared, now)
        self._each[instance].observe(tokens, seconds, learnt, declared, now)

    def of(self, instance: str | None) -> _Observed:
        """Return the observations of one instance; None = of all instances together."""
        return self.all if instance is None else self._each.get(instance, _Observed())

    def forget(self, instance: str) -> None:
        self._each.pop(instance, None)

    def forget_older(self, before: float) -> None:
        """Forget figures whose last observation was before this time (Unix seconds)."""
        for instance in [name for name, observed in self._each.items() if observed.observed_at < before]:
            del self._each[instance]
        if self.all.observed_at < before:
            self.all = _Observed()


class PrefillTimes:
    """Estimates of the seconds that a prompt's prefill takes on an instance without other work.

    `speed`, in tokens per second, is used for predictions and choices. It is the measured speed once enough prefills
    were observed. Before that, it is the `recalled` speed or, if there is none, the declared speed. `observed_speed` is
    the measured or the recalled speed, or None; only this speed may justify refusing, moving or scaling. With a `form`
    other than `configured`, predictions use a fit as soon as there are enough observations.
    """

    def __init__(
        self,
        engine: EngineFacts,
        form: str = "configured",
        min_samples: int = 200,
        speeds: PrefillSpeeds | None = None,
        whole: WholeAnswers | None = None,
    ) -> None:
        self.form = form
        self.speeds = PrefillSpeeds() if speeds is None else speeds
        self.whole = WholeAnswers() if whole is None else whole
        self.recalled = RecalledSpeed()
        self._declared = self.speed = engine.prefill_tokens_per_second
        self.observed_speed: float | None = None
        self._go_by_best()
        self._min_samples = min_samples
        per_thousand = 1000 / self.speed
        prior = [0.0, per_thousand] if form == "linear" else [0.0, per_thousand, 0.0, 0.0]
        doubt = [1.0, 1.0] if form == "linear" else [1.0, 1.0, 0.1, 0.01]
        self._fit = LeastSquares(prior, [one * (10 * per_thousand) ** 2 for one in doubt])
        self._observed = _ObservedByInstance()
        self._went_by, self._took = _Mean(), _Mean()
        """Mean seconds per token of longer prefills: predicted, and observed."""

    @property
    def samples(self) -> int:
        """Number of prefills observed in total."""
        return self._observed.all.samples

    @property
    def fitted(self) -> bool:
        """Whether predictions come from the fit instead of the speed."""
        return self.form != "configured" and self.samples >= self._min_samples

    def seconds(self, prompt_tokens: int, hit_tokens: int) -> float:
        """Return the predicted seconds to compute the uncached part of a prompt."""
        configured = max(1, prompt_tokens - hit_tokens) / self.speed
        if self.form == "configured" or not self.fitted:  # asked several times a request: most pools have nothing to look up
            return configured
        return self._bounded(prompt_tokens, hit_tokens, configured)

    def seconds_vector(self, prompt_tokens: int, hits: IntVector) -> FloatVector:
        """Return the result of `seconds` for each entry of `hits`, as a vector."""
        tokens = misses(prompt_tokens, hits)
        configured: FloatVector = tokens / self.speed
        if not self.fitted:
            return configured
        c = self._fit.coefficients
        x, s = tokens / 1000, prompt_tokens / 1000
        fitted = c[0] + c[1] * x if self.form == "linear" else c[0] + c[1] * x + c[2] * s + c[3] * (x * s)
        bounded: FloatVector = np.clip(fitted, configured / FURTHEST, configured * FURTHEST + 1.0)
        return bounded

    def declare(self, engine: EngineFacts) -> None:
        """Use the speed that the pool declares now; measurements are kept."""
        self._declared = engine.prefill_tokens_per_second
        self._go_by_best()

    @property
    def is_measured(self) -> bool:
        """Whether this router has measured the speed, rather than recalled it."""
        return self.speeds.tokens_per_second is not None or self.whole.tokens_per_second is not None

    def recall(self, figure: Figure, now: float) -> None:
        """Use this figure from before a restart until the speed is measured. An unknown figure removes the figure of an
        earlier call.
        """
        self.recalled.take(figure, now)
        self._go_by_best()

    def observe(self, instance: str, prompt_tokens: int, hit_tokens: int, seconds: float, now: float = 0.0) -> None:
        """Add the duration of a prefill. Impossible times and lengths are ignored. The fit is not repeated with each
        prefill, but after some new prefills.
        """
        if not (seconds >= 0 and isfinite(seconds) and 0 < prompt_tokens <= MOST_TOKENS):
            return
        tokens = max(1, prompt_tokens - hit_tokens)
        seconds, speed = min(seconds, LONGEST_PREFILL_SECONDS), self.speed
        if self.speeds.observe(instance, tokens, seconds, now) or (not self.is_measured and self.recalled.observe(tokens, seconds)):
            self._go_by_best()
        if not seconds:
            return  # one step computed it with the one before, which tells the time of both
        if self.form == "configured":
            mean = self._observed.all.seconds_per_token.value
            learnt = None if mean is None else tokens * mean
            predicted = tokens / speed
        else:
            learnt = self._bounded(prompt_tokens, hit_tokens, tokens / speed)
            predicted = learnt if self.fitted else tokens / speed
            self._fit.observe(self._features(prompt_tokens, hit_tokens), seconds, now)
        if tokens >= COMPARED_TOKENS:
            self._went_by.observe(predicted / tokens, tokens)
            self._took.observe(seconds / tokens, tokens)
        self._observed.observe(instance, tokens, seconds, learnt, tokens / self._declared, now)

    def observe_whole(
        self, instance: str, prompt_tokens: float, output_tokens: int, context_tokens: float, requests: float, seconds: float, now: float
    ) -> None:
        """Add the duration of a whole answer (`WholeAnswers`). The speed is measured on whole answers only if no
        separate prefill is observed.
        """
        if self.whole.observe(instance, prompt_tokens, output_tokens, context_tokens, requests, seconds, now):
            self._go_by_best()

    def figure(self, now: float, instance: str | None = None) -> Figure:
        """Return the prefill speed of one instance, with source, spread and age. None = of all instances together."""
        if instance is not None:
            return best(self.speeds.figure(now, instance), declared(self._declared))
        return best(self.measured(now), self.recalled.figure(now), declared(self._declared))

    def measured(self, now: float) -> Figure:
        """Return the speed measured over all instances; unknown before the first measurement."""
        return best(self.speeds.figure(now), self.whole.figure(now))

    def report(self, instance: str | None = None) -> EstimateReport:
        """Return the seconds per prefilled token, and the errors in predicting whole prefills, for one instance (None =
        for all instances together).
        """
        report = self._observed.of(instance).report(self.form, self.fitted or self.observed_speed is not None)
        return report if instance is not None else replace(report, predicted=self._went_by.value, observed=self._took.value)

    def forget(self, instance: str) -> None:
        """Forget the observations of an instance that no longer exists or whose engine was replaced."""
        self._observed.forget(instance)
        self.speeds.forget(instance)
        self.whole.forget(instance)
        self._go_by_best()

    def forget_older(self, now: float) -> None:
        """Drop observations that are too old to count."""
        self._observed.forget_older(now - MEMORY_SECONDS)
        self._fit.forget(now - MEMORY_SECONDS)
        self.speeds.forget_older(now - MEMORY_SECONDS)
        self.whole.forget_older(now - MEMORY_SECONDS)
        self.recalled.forget_older(now - REMEMBERED_SECONDS)
        self._go_by_best()
        if not self.samples:
            self._went_by, self._took = _Mean(), _Mean()

    def _go_by_best(self) -> None:
        prefills = self.speeds.tokens_per_second
        answers = self.whole.tokens_per_second if prefills is None else prefills
        self.observed_speed = self.recalled.value if answers is None else answers
        self.speed = self._declared if self.observed_speed is None else self.observed_speed

    def _bounded(self, prompt_tokens: int, hit_tokens: int, configured: float) -> float:
        fitted = self._fit.predict(self._features(prompt_tokens, hit_tokens))
        return min(max(fitted, configured / FURTHEST), configured * FURTHEST + 1.0)

    def _features(self, prompt_tokens: int, hit_tokens: int) -> tuple[float, ...]:
        x = max(1, prompt_tokens - hit_tokens) / 1000
        s = prompt_tokens / 1000
        return (1.0, x) if self.form == "linear" else (1.0, x, s, x * s)


class DecodeTimes:
    """Estimates of the duration of a decode step with a given number of context tokens and requests, in seconds. They
    use the table's figure or, without one, a fit to observed answers. Until enough answers are observed, the fit starts
    from a recalled fit.
    """

    def __init__(self, engine: EngineFacts, min_samples: int = STEPS_OBSERVED) -> None:
        self._modelled = engine.modelled
        self._is_modelled = engine.modelled.decode_known
        self._min_samples = min_samples
        self._fit = LeastSquares(NO_STEP, [1.0, 1.0, 1.0])
        self._observed = _ObservedByInstance()
        self._fitted_samples = 0
        self._recalled_at: float | None = None
        """Time at which the recalled fit was observed (Unix seconds); None without a recalled fit."""
        self._went_by, self._stepped = _Mean(), _Mean()
        """Mean seconds of a decode step: predicted, and observed."""

    @property
    def samples(self) -> int:
        """Number of answers observed in total."""
        return self._observed.all.samples

    @property
    def known(self) -> bool:
        """Whether a decode step's time can be predicted."""
        return self._is_modelled or self.is_measured or self._recalled_at is not None

    @property
    def is_settled(self) -> bool:
        """Whether predictions use the table's figures, or use a sufficient number of observations by this router."""
        return self._is_modelled or self.is_measured

    @property
    def is_measured(self) -> bool:
        """Whether this router has observed enough for a fit of its own."""
        return self._fitted_samples >= self._min_samples

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Three numbers that predict the seconds of a decode step: a base, the seconds added per 100,000 context
        tokens, and the seconds added per 100 requests. Empty until this router has fitted them.
        """
        return self._fit.coefficients if self.is_measured and not self._is_modelled else ()

    def recall(self, coefficients: tuple[float, ...], age_seconds: float, now: float) -> None:
        """Start with these coefficients, which were fitted to observations made `age_seconds` ago. New observations
        soon replace them. The call does nothing if enough has been observed already.
        """
        if not self._is_modelled and not self.is_measured:
            self._recalled_at = now - age_seconds
            if self._fit.start != coefficients:
                self._fit.start_from(coefficients)

    def forget_recalled(self) -> None:
        """Drop recalled coefficients."""
        if self._recalled_at is not None:
            self._recalled_at = None
            self._fit.start_from(NO_STEP)

    def seconds(self, context_tokens: float, requests: float) -> float:
        """Return the predicted seconds of one decode step; 0 while nothing is known."""
        if self._is_modelled:
            return self._modelled.decode_seconds(context_tokens, requests)
        if self._fitted_samples < self._min_samples and self._recalled_at is None:
            return 0.0
        return min(LONGEST_STEP_SECONDS, max(0.0, self._fit.predict((1.0, context_tokens / 1e5, requests / 100))))

    def observe_answer(self, instance: str, output_tokens: int, seconds: float, now: float = 0.0) -> None:
        """Add the duration of an answer after its first token. Impossible durations are ignored; a time per token above
        the longest plausible step is reduced to that step's time.
        """
        if seconds > 0 and isfinite(seconds) and 1 < output_tokens <= MOST_TOKENS:
            tokens, mean = output_tokens - 1, self._observed.all.seconds_per_token.value
            seconds = min(seconds, tokens * LONGEST_STEP_SECONDS)
            self._observed.observe(instance, tokens, seconds, None if mean is None else tokens * mean, None, now)

    def observe(self, context_tokens: float, requests: float, seconds: float, now: float = 0.0) -> None:
        """Add an observation to the fit: a request decoded at `seconds` per token while the engine held this many
        context tokens and requests on average. Impossible and too long times are treated as in `observe_answer`.
        """
        if self._is_modelled or not (seconds > 0 and isfinite(seconds)):
            return
        if 0 <= context_tokens <= MOST_TOKENS and 0 <= requests <= MOST_REQUESTS:
            if self.known:
                self._went_by.observe(self.seconds(context_tokens, requests))
                self._stepped.observe(min(seconds, LONGEST_STEP_SECONDS))
            self._fit.observe((1.0, context_tokens / 1e5, requests / 100), min(seconds, LONGEST_STEP_SECONDS), now)
            self._fitted_samples += 1
            if self._fitted_samples == RECALLED_UNTIL:
                self.forget_recalled()

    def is_crowded(self, now: float) -> bool:
        """Return whether an observation may be skipped, because a further observation would hardly change the fit."""
        return self._fit.is_crowded(now)

    def forget_older(self, now: float) -> None:
        """Forget observations that are too old; if none remain, decode times are unknown again."""
        self._observed.forget_older(now - MEMORY_SECONDS)
        self._fit.forget(now - MEMORY_SECONDS)
        if self._recalled_at is not None and now - self._recalled_at > REMEMBERED_SECONDS:
            self.forget_recalled()
        if not len(self._fit):
            self._fitted_samples = 0
            self._went_by, self._stepped = _Mean(), _Mean()

    def begin_again(self) -> None:
        """Discard the observations of the fit. Only later observations are used."""
        self._fit.forget(inf)
        self._fitted_samples = 0
        self._went_by, self._stepped = _Mean(), _Mean()

    def report(self, instance: str | None = None) -> EstimateReport:
        """Return the seconds per decoded token that requests observe, and the error of predicting whole answers by the
        mean. The result is for one instance; None = for all instances together.
        """
        report = self._observed.of(instance).report("fitted", self.known and not self._is_modelled)
        return report if instance is not None else replace(report, predicted=self._went_by.value, observed=self._stepped.value)

    def figure(self, now: float, instance: str | None = None) -> Figure:
        """Return the seconds per output token after the first that requests observe on one instance; None = on all
        instances together.
        """
        return self._observed.of(instance).figure(now)

    def forget(self, instance: str) -> None:
        """Forget the observations of an instance that no longer exists or whose engine was replaced."""
        self._observed.forget(instance)
