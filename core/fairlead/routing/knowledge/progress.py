"""Judges whether an engine that has work makes progress, by its metrics and its responses.

An engine's HTTP server is often a separate process, which goes on responding while the computing process hangs: its
metrics then repeat the last figures. So an engine is judged by figures that change with its steps: counts of tokens and
steps, the used share of its KV cache, the number of running requests, tokens of answers, batches of KV events. A change
of any of them is a movement.

    still = from the later of {last movement, first request of this router that waits} to the newest reading
    slow    when still >= allowed / 2
    stalled when still >= allowed, until the next movement

allowed = max(10 s, 4 x its longest step, 4 x the longest running prefill that may be one step)

A step is the observed time between two movements while the engine runs requests. The longest step of the last half hour
counts, but at most 15 s of it. A running prefill may be one step if it is clearly longer than the recent prefills that
have finished. `UNMEASURED_SECONDS` is allowed to an engine whose steps are not known yet, and to an engine that reports
no running requests: a request may wait before its first step, for an image or a grammar.

All times are seconds of a clock that stops while this process is paused, so a pause of this process does not count as
an engine's silence.
"""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.routing.contracts.loads import GivenWork

LEAST_SECONDS = 10.0
"""Minimum seconds without a movement after which an engine may count as stalled."""
TIMES_LONGEST = 4.0
"""An engine may show no movement for this many times its longest step."""
PLAUSIBLE_STEP_SECONDS = 15.0
"""Maximum seconds that count of a step; the rest of a longer step is ignored. Otherwise an engine that hung once could
hang longer the next time before it counts as stalled.
"""
UNMEASURED_SECONDS = 60.0
"""Seconds without a movement after which an engine counts as stalled, if its step times are not known yet or it reports
no running requests.
"""
LIKE = 1.25
"""Factor on the longest recent prefill that has finished. For prefills up to this length, the observed step times count
as known.
"""
MOST_PREFILL_SECONDS = 300.0
"""Upper limit, in seconds, for the part of the allowed time that is derived from the length of a running prefill."""
LOOK_SECONDS = 2.0
"""Maximum number of seconds added to a step, because the exact end of the step is unknown: it lies between the last
reading without a movement and the first reading with a movement.
"""
KNOWN_STEPS = 3
KNOWN_SECONDS = 3.0
"""An engine's step times are known once at least `KNOWN_STEPS` steps were observed whose durations add up to this many
seconds.
"""
WINDOW_SECONDS = 900.0
"""Length of a window in seconds; the longest step of the present and of the previous window counts."""
CANARY_SECONDS = 30.0
"""Seconds without a movement after which an idle or stalled engine gets a test request for one token, if its pool
allows it.
"""
SLOW_SHARE = 0.5
"""Share of the allowed time after which an engine is slow."""
TRIAL_SECONDS = 30.0
LONGEST_TRIAL_SECONDS = 300.0
"""Maximum pause in seconds before a stalled engine is tried again, if no request is queued for it. After the pause, the
engine gets requests as a trial. The pause doubles with each failed trial, up to this maximum.
"""


class Life(StrEnum):
    """The state of an engine's work. The values are used as labels of metrics."""

    UNKNOWN = "unknown"
    """No figure in the engine's metrics changes with its steps, or the engine sleeps."""
    IDLE = "idle"
    """The engine has no work from this router."""
    UNMEASURED = "unmeasured"
    """The engine has work, but its step times are not known yet."""
    ACTIVE = "active"
    SLOW = "slow"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """Figures that change with the steps of an engine, or of one of its data-parallel ranks. `counts` never fall while
    the engine lives; `gauges` may.
    """

    running: int
    counts: tuple[float, ...]
    gauges: tuple[float, ...] = ()

    def is_restart_of(self, before: "Movement") -> bool:
        """Return whether these figures come from a restarted engine, that is, whether a count is lower than in
        `before`.
        """
        return len(self.counts) == len(before.counts) and any(now < then for now, then in zip(self.counts, before.counts, strict=True))


class _Longest:
    """The largest value in the present and the previous window."""

    __slots__ = ("_before", "_began_at", "_now")

    def __init__(self) -> None:
        self._before = self._now = 0.0
        self._began_at = 0.0

    def add(self, value: float, now: float) -> None:
        self._turn(now)
        self._now = max(self._now, value)

    def value(self, now: float) -> float:
        self._turn(now)
        return max(self._before, self._now)

    def _turn(self, now: float) -> None:
        if now - self._began_at >= WINDOW_SECONDS:
            self._before = self._now if now - self._began_at < 2 * WINDOW_SECONDS else 0.0
            self._now, self._began_at = 0.0, now


class StepTimes:
    """The step times of one engine, as far as they are known."""

    def __init__(self) -> None:
        self._steps = 0
        self._seconds = 0.0
        self._longest = _Longest()
        self._split = _Longest()

    def add(self, seconds: float, now: float) -> None:
        """Add the duration of a step."""
        self._steps += 1
        self._seconds += seconds
        self._longest.add(min(seconds, PLAUSIBLE_STEP_SECONDS), now)

    def prefilled(self, seconds: float, now: float) -> None:
        """Record that a prefill of this predicted duration has finished. From now on, the step times of prefills of
        this length count as known.
        """
        self._split.add(seconds, now)

    @property
    def known(self) -> bool:
        """Whether enough steps were observed to judge the engine by the length of its steps."""
        return self._steps >= KNOWN_STEPS and self._seconds >= KNOWN_SECONDS

    def longest(self, now: float) -> float:
        """Return the seconds of the longest recent step."""
        return self._longest.value(now)

    def allowed(self, prefill_seconds: float, now: float) -> float:
        """Return the seconds within which a figure should change while a prefill predicted to take `prefill_seconds` is
        running.
        """
        unseen = prefill_seconds if prefill_seconds > LIKE * self._split.value(now) else 0.0
        least = max(LEAST_SECONDS, TIMES_LONGEST * self.longest(now)) if self.known else UNMEASURED_SECONDS
        return max(least, min(TIMES_LONGEST * unseen, MOST_PREFILL_SECONDS))


class EngineProgress:
    """The progress of one engine, or of one of its data-parallel ranks. Ranks are separate processes, so a single rank
    may hang. `least_seconds` is the minimum of the allowed time.
    """

    def __init__(self, least_seconds: float = LEAST_SECONDS) -> None:
        self._least_seconds = least_seconds
        self._shown: Movement | None = None
        """The latest figures of the engine."""
        self._moved_at = self._seen_at = 0.0
        """Two times: the last change of the engine's figures, and their last reading."""
        self._given_at: float | None = None
        self._trial_at = 0.0
        self._trial_seconds = TRIAL_SECONDS
        self.steps = StepTimes()
        self.life = Life.UNKNOWN
        self.still_seconds = 0.0
        """Seconds without a movement although the engine has work."""
        self.allowed_seconds = UNMEASURED_SECONDS
        """Seconds without a movement after which the engine counts as stalled; after half of this time it counts as
        slow.
        """
        self._stalled_at: float | None = None
        self._certain_at: float | None = None
        self.stalled_seconds = 0.0
        """Seconds for which the engine has certainly been stalled, at the last check. A stall is certain if the engine
        reports running requests, or if a trial request failed as well. Otherwise the requests may not have reached the
        engine.
        """
        self.on_trial = False
        """Whether the engine is stalled and gets requests anyway, as a trial."""

    # ── what is seen ──

    def moved(self, now: float) -> None:
        """Record that a token or a batch of KV events arrived."""
        if self._shown is not None and self._shown.running:
            self._learn(now)
        self._moved_at = self._seen_at = now
        self._recover()

    def saw(self, shown: Movement | None, given: GivenWork, now: float) -> Life:
        """Process the engine's figures from its metrics and the work that this router has given to the engine. The
        figures are None if the metrics have none. Return the state of the engine's work.
        """
        before, self._shown = self._shown, shown
        if before is None or shown is None:
            self._begin(now)
        elif shown != before:
            if shown.is_restart_of(before):
                self.steps = StepTimes()
            elif before.running:
                self._learn(now)
            self._moved_at = now
            self._recover()
        self._seen_at = now
        if given.prefilled_seconds:
            self.steps.prefilled(given.prefilled_seconds, now)
        self.life = self._judge(given, now)
        self.stalled_seconds = 0.0 if self._certain_at is None else now - self._certain_at
        return self.life

    def _begin(self, now: float) -> None:
        self.steps = StepTimes()
        self._moved_at = now
        self._recover()

    def _learn(self, now: float) -> None:
        """Record the step that has ended with a movement. The exact time of the movement is unknown: it lies after the
        last reading.
        """
        if self._given_at is not None:
            began_at = max(self._moved_at, self._given_at)
            self.steps.add(max(0.0, self._seen_at - began_at) + min(now - max(self._seen_at, began_at), LOOK_SECONDS), now)

    def _recover(self) -> None:
        self._stalled_at = self._certain_at = None
        self.stalled_seconds = 0.0
        self.on_trial = False
        self._trial_seconds = TRIAL_SECONDS

    # ── when it is asked for a token ──

    def wants_canary(self, now: float) -> bool:
        """Return whether to send the engine a test request for one token (a canary): the engine is idle or stalled, and
        there has been no movement for `CANARY_SECONDS`.
        """
        quiet = self._shown is not None and now - self._moved_at >= CANARY_SECONDS
        return quiet and (self.life is Life.IDLE or (self.life is Life.STALLED and self._given_at is None))

    def canary_unanswered(self, asked_at: float, now: float) -> bool:
        """Record that the canary request sent at `asked_at` got no token. Return whether this proves that the engine
        hangs.

        It does if there has been no movement since `asked_at`, and if the engine was already stalled or reports no
        running requests. The canary may otherwise only have waited for running requests.
        """
        quiet = self._shown is not None and self._moved_at <= asked_at
        hangs = quiet and (self._stalled_at is not None or not self._runs)
        if hangs:
            self._stall(now, certain=True)
        return hangs

    # ── what follows ──

    def _judge(self, given: GivenWork, now: float) -> Life:
        waited_for = given.requests + given.others if self._runs else given.requests
        if not waited_for:
            self._given_at = None
        elif self._given_at is None:
            self._given_at = now
        self.allowed_seconds = self._allowed(given, now)
        if self._shown is None:
            return Life.UNKNOWN
        if self._given_at is None:
            self.still_seconds = 0.0
            return self._unasked(now)
        self.still_seconds = now - max(self._moved_at, self._given_at)
        if self.still_seconds >= self.allowed_seconds:
            self._stall(now, certain=self._runs or self.on_trial)
        if self._stalled_at is not None:
            return Life.STALLED
        if self.still_seconds >= SLOW_SHARE * self.allowed_seconds:
            return Life.SLOW
        return Life.ACTIVE if self.steps.known and self._runs else Life.UNMEASURED

    @property
    def _runs(self) -> bool:
        """Whether the engine reports running requests."""
        return self._shown is not None and self._shown.running > 0

    def _allowed(self, given: GivenWork, now: float) -> float:
        allowed = self.steps.allowed(given.longest_prefill_seconds, now)
        return max(allowed, self._least_seconds if self._runs else UNMEASURED_SECONDS)

    def _stall(self, now: float, *, certain: bool) -> None:
        """Record that the engine is stalled, or that a trial request failed as well. `certain` says that requests have
        reached the engine.
        """
        if certain and self._certain_at is None:
            self._certain_at = now
        if self._stalled_at is None:
            self._stalled_at = now
        elif now >= self._trial_at:
            self._trial_seconds = min(2 * self._trial_seconds, LONGEST_TRIAL_SECONDS)
        else:
            return
        self.on_trial = False
        self._trial_at = now + self._trial_seconds

    def _unasked(self, now: float) -> Life:
        """Return the state of an engine for which no request waits. A stalled engine still counts as stalled, because
        its state can no longer be observed. After a while the engine gets requests as a trial.
        """
        if self._stalled_at is None:
            return Life.IDLE
        self.on_trial = self.on_trial or now >= self._trial_at
        return Life.STALLED
