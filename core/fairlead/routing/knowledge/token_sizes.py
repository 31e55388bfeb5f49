"""Bytes per token, estimated for each kind of prompt from the token counts that engines report.

Routers see bytes and engines count tokens, so routers need a ratio. Only comparable prompts may be averaged: a token of
text has two to five bytes, and routers cannot read the text that a chat template adds for tools, images or a stored
conversation. So each kind of prompt (`prompt_kind`) has its own estimate. One more estimate, over the plain text of all
URL paths together, is the pool's figure. A kind with too few counts uses the pool's figure or, until that figure is
known, the declared figure.

An estimate is the weighted median of a kind's last prompts, so that outliers do not move it. It stays within `LEAST`
and `MOST`. Prompts older than `MEMORY_SECONDS` no longer count; without enough recent prompts the estimate is unknown
again. The pool's figure changes in steps, because all figures that are counted in tokens restart with each change.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, sqrt
from operator import itemgetter

from fairlead.capabilities import REMEMBERED_SECONDS, UNKNOWN, Figure, Source, spread_of
from fairlead.tables import EngineFacts

MEMORY_PROMPTS = 100
"""Number of prompts of a kind from which its estimate is computed. Beyond it, a new prompt replaces the oldest."""
MEMORY_SECONDS = 3600.0
"""Seconds for which a prompt counts."""
FORGET_SECONDS = 60.0
"""Seconds between two checks for estimates that are too old."""

FIRST_PROMPTS = 20
"""Minimum number of prompts of a kind for its estimate to be used."""
ESTIMATED_EVERY = 20
"""Number of prompts after which an estimate is computed again."""

STEP = 0.05
"""Minimum relative difference between a new estimate and the pool's figure in use. With a smaller difference, the
figure is not changed.
"""

LEAST, MOST = 0.5, 16.0
"""Plausible bytes per token. A token of most vocabularies has one to five bytes: few in base64 and non-Latin scripts,
many in English, and still more in runs of blanks. A byte never needs two tokens, but a template adds some tokens. A
declared figure outside this range extends the range.
"""

MOST_KINDS = 64
"""Maximum number of kinds remembered; beyond it, the least recently seen kind is forgotten."""

ERRORS_KEPT = 500

_RATIO, _WEIGHT = itemgetter(1), itemgetter(2)

GIVEN_IDS = "token-ids"
"""The kind of prompts that clients send as token ids. Each id counts as `ID_BYTES` bytes, so the bytes per token need
no estimate.
"""
ID_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class KindReport:
    """How the length of a kind of prompt is converted to tokens: by the kind's own estimate (`learned`), by the figure
    for `text`, or by the `declared` figure.
    """

    kind: str
    bytes_per_token: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSizeReport:
    """How the length of plain text is converted to tokens. `bytes_per_token` is the figure in use, `learnt` the
    estimate from the last prompts.

    `error` is the mean absolute error of the router's token counts, compared with the engine's counts, over the last
    prompts. `declared_error` is the error that the declared figure would have had for the same prompts. Both are shares
    (0.1 = 10 %), None before any prompt.
    """

    bytes_per_token: float
    learnt: float | None
    samples: int
    error: float | None
    declared_error: float | None
    kinds: tuple[KindReport, ...] = ()
    """The kinds of prompt that were seen recently."""


class _Estimate:
    """The weighted median of the last prompts' bytes per token. A prompt's weight is the square root of its length.
    Long prompts count more than short ones, because a template adds a large part of a short prompt. With the square
    root, no prompt outweighs all others.
    """

    __slots__ = ("_last", "observed", "samples", "value")

    def __init__(self) -> None:
        self._last: deque[tuple[float, float, float]] = deque(maxlen=MEMORY_PROMPTS)
        """For each remembered prompt: the time at which it was observed (seconds), its bytes per token, and its weight.
        """
        self.samples = 0
        self.observed: float | None = None
        """The weighted median of the remembered prompts' bytes per token; None without prompts."""
        self.value: float | None = None
        """The estimate in use: the median, or None while too few prompts are remembered."""

    def __bool__(self) -> bool:
        """Return whether any prompt is remembered."""
        return bool(self._last)

    def observe(self, sample: tuple[float, float, float]) -> bool:
        """Add a prompt: the time at which it was observed, its bytes per token, and its weight. Return whether an
        estimate exists.
        """
        self._last.append(sample)
        self.samples += 1
        if self.samples % ESTIMATED_EVERY and len(self._last) > FIRST_PROMPTS:
            return False
        self._estimate()
        return True

    @property
    def observed_at(self) -> float:
        """Return the time at which the last prompt was observed."""
        return self._last[-1][0]

    def figure(self, now: float) -> Figure:
        """Return the estimate as a measured figure; unknown without an estimate."""
        if self.value is None:
            return UNKNOWN
        return Figure(
            value=self.value,
            source=Source.MEASURED,
            spread=spread_of((ratio, weight) for _, ratio, weight in self._last),
            samples=len(self._last),
            age_seconds=max(0.0, now - self.observed_at),
        )

    def forget(self, before: float) -> None:
        """Drop the prompts observed before this time."""
        if self._last and self._last[0][0] < before:
            while self._last and self._last[0][0] < before:
                self._last.popleft()
            self._estimate()

    def _estimate(self) -> None:
        self.observed = self.value = None
        last = sorted(self._last, key=_RATIO)
        half = sum(map(_WEIGHT, last)) / 2
        for _, ratio, weight in last:
            half -= weight
            if half <= 0:
                self.observed = ratio
                self.value = ratio if len(last) >= FIRST_PROMPTS else None
                return


class TokenSizes:
    """The bytes per token in one pool: the `declared` figure until the engines have reported enough token counts. Times
    are seconds of any monotonic clock.
    """

    def __init__(self, declared: float) -> None:
        self.declared = float(declared)
        self.bytes_per_token = self.declared
        """The pool's figure: for plain text, and for kinds without a better figure."""
        self._least, self._most = min(LEAST, self.declared), max(MOST, self.declared)
        self._text = _Estimate()
        self._kinds: dict[str, _Estimate] = {}
        self._next_step_at = FIRST_PROMPTS
        self._errors: deque[tuple[float, float]] = deque(maxlen=ERRORS_KEPT)
        self._recalled: Figure = UNKNOWN
        self._recalled_at = 0.0

    @property
    def samples(self) -> int:
        """Number of plain-text prompts observed."""
        return self._text.samples

    def of(self, kind: str) -> float:
        """Return the bytes per token in prompts of this kind."""
        estimate = self._kinds.get(kind)
        if estimate is not None and estimate.value is not None:
            return estimate.value
        return ID_BYTES if kind == GIVEN_IDS else self.bytes_per_token

    def tokens(self, counted_bytes: int, kind: str = "") -> int:
        """Return the estimated number of tokens in a prompt of this many bytes; at least 1."""
        return max(1, ceil(counted_bytes / self.of(kind)))

    def observe(self, counted_bytes: int, prompt_tokens: int, now: float = 0.0, kind: str = "", *, text: bool = True) -> bool:
        """Record that an engine counted `prompt_tokens` tokens in a prompt of this kind; `text` says whether the prompt
        is plain text. Return whether `bytes_per_token` changed. Impossible counts are ignored.
        """
        if kind == GIVEN_IDS or counted_bytes <= 0 or prompt_tokens <= 0:
            return False
        ratio = counted_bytes / prompt_tokens
        if not self._least <= ratio <= self._most:  # nor is a ratio that is not a number
            return False
        sample = (now, ratio, sqrt(counted_bytes))
        estimate = self._kinds.get(kind)
        (self._of_new_kind(kind) if estimate is None else estimate).observe(sample)
        if not text:
            return False
        self._errors.append((abs(ratio / self.bytes_per_token - 1), abs(ratio / self.declared - 1)))
        return self._text.observe(sample) and self._step()

    def recall(self, figure: Figure, now: float) -> bool:
        """Use this figure from before a restart until enough prompts were observed. If the figure is unknown, use the
        declared figure. Return whether `bytes_per_token` changed.
        """
        self._recalled, self._recalled_at = figure, now - (figure.age_seconds or 0.0)
        return self._text.value is None and self._fall_back(now)

    def forget(self, now: float) -> bool:
        """Drop old prompts. Return whether `bytes_per_token` changed."""
        before = now - MEMORY_SECONDS
        for kind, estimate in tuple(self._kinds.items()):
            estimate.forget(before)
            if not estimate:
                del self._kinds[kind]
        self._text.forget(before)
        return self._text.value is None and self._fall_back(now)

    def _fall_back(self, now: float) -> bool:
        """Use the recalled figure or, without one, the declared figure. Return whether `bytes_per_token` changed."""
        recalled = self._recalled.observed if now - self._recalled_at <= REMEMBERED_SECONDS else None
        before, self.bytes_per_token = self.bytes_per_token, self.declared if recalled is None else recalled
        if self.bytes_per_token == before:
            return False
        self._next_step_at = self.samples + FIRST_PROMPTS
        return True

    def counted(self, engine: EngineFacts) -> EngineFacts:
        """Return the engine facts with their tokens per routing block: the block's bytes divided by the present bytes
        per token.
        """
        if self.bytes_per_token == self.declared:
            return engine
        return replace(engine, block_tokens=max(1, round(engine.block_bytes / self.bytes_per_token)))

    def report(self) -> TokenSizeReport:
        """Return the pool's figure in use and its error."""
        count = len(self._errors)
        return TokenSizeReport(
            bytes_per_token=self.bytes_per_token,
            learnt=self._text.observed,
            samples=self.samples,
            error=sum(used for used, _ in self._errors) / count if count else None,
            declared_error=sum(declared for _, declared in self._errors) / count if count else None,
            kinds=tuple(self._kind_reports()),
        )

    def measured(self, now: float) -> Figure:
        """Return the bytes of plain text per token, as measured by this router; unknown before enough prompts."""
        return self._text.figure(now)

    def _kind_reports(self) -> Iterator[KindReport]:
        fallback = "declared" if self.bytes_per_token == self.declared else "text"
        for kind, estimate in sorted(self._kinds.items()):
            yield KindReport(kind=kind, bytes_per_token=self.of(kind), by=fallback if estimate.value is None else "learned")

    def _of_new_kind(self, kind: str) -> _Estimate:
        if len(self._kinds) >= MOST_KINDS:
            del self._kinds[min(self._kinds, key=lambda one: self._kinds[one].observed_at)]
        self._kinds[kind] = estimate = _Estimate()
        return estimate

    def _step(self) -> bool:
        estimate = self._text.value
        if estimate is None or self.samples < self._next_step_at or abs(estimate / self.bytes_per_token - 1) <= STEP:
            return False
        self.bytes_per_token = estimate
        self._next_step_at = self.samples + MEMORY_PROMPTS
        return True
