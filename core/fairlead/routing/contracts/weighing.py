"""The values that a policy compares, as data: terms with unit and direction, limits, and rules. Each rule has
conditions under which the policy decides by it.

A decision names its rule. From the recorded terms and limits anyone can check that the rule leads to the chosen
instance.
"""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.reports.units import Unit as Unit


class Better(StrEnum):
    """Whether a higher or a lower value of a term is better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A figure that a policy compares between candidates. `words` name the figure in a sentence."""

    name: str
    words: str
    unit: Unit
    better: Better = Better.LOWER


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A figure of the decision as a whole: a threshold, or a weight that was used."""

    name: str
    words: str
    unit: Unit


class Holds(StrEnum):
    """The relation that a condition requires between its two values."""

    ABOVE = "above"
    AT_MOST = "at-most"


CHOSEN = "chosen"
PASSED_OVER = "passed-over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A condition that compares two values of a decision. The first value is the `term` of the candidate `of` (the
    chosen instance, or the instance that was passed over). The second value is named by `against`: a limit of the
    decision or, if `against` is `chosen`, the same term of the chosen instance.

    If `term` itself names a limit, two limits of the decision are compared.
    """

    term: str
    holds: Holds
    against: str
    of: str = CHOSEN


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRule:
    """One way in which a policy decides.

    The rule applies only if the conditions `given` hold. It compares the candidates that satisfy the condition `among`
    (None = all candidates). The chosen instance is the best of them by `order`: the first term decides, the next term
    decides between equal candidates, and so on, each in its own direction. Empty = the rule compares nothing. Remaining
    ties are broken by `ties`. `because` ends the sentence "X was chosen: …".
    """

    code: str
    because: str
    order: tuple[str, ...] = ()
    among: Comparison | None = None
    given: tuple[Comparison, ...] = ()
    ties: str = "by id"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTerms:
    """All terms, limits and rules with which a policy's decisions are recorded. `total` is the term that the policy
    usually compares; None if the policy compares no single term. `parts` are the terms whose sum is `total`; empty if
    `total` is not a sum.
    """

    rules: tuple[DecisionRule, ...]
    total: Term | None = None
    parts: tuple[str, ...] = ()
    terms: tuple[Term, ...] = ()
    limits: tuple[Limit, ...] = ()


TOTAL = "total"
ONLY_INSTANCE = "only-instance"
QUEUE_FULL = "queue-full"
NO_PREFILL = "no-prefill"
INDIVISIBLE = "indivisible"
OUTSIDE_SUBSET = "outside-subset"
IDLE_INSTANCE = "idle-instance"
STAYS_PAUSED = "migrations-paused"
MOVED_BY_PERSON = "moved-by-person"
GAIN_TOO_SMALL = "gain-too-small"
NOT_RECORDED = "not-recorded"
"""The rule given to decisions that were made before rules were recorded."""
NOT_WEIGHED = "not-weighed"
"""The rule given to decisions without recorded candidates. Candidates are recorded only if there is a reason to keep
the decision at the time of the decision.
"""
NOBODY = "nobody"
"""The rule given to decisions when no instance could be chosen."""

COMMON_TERMS = (
    Term(name="hit_tokens", words="cached prompt", unit=Unit.TOKENS, better=Better.HIGHER),
    Term(name="miss_tokens", words="uncached prompt", unit=Unit.TOKENS),
    Term(name="pending_tokens", words="waiting ahead", unit=Unit.TOKENS),
    Term(name="predicted_ttft_seconds", words="predicted TTFT", unit=Unit.SECONDS),
)
"""The terms that every candidate has under every policy."""

TIER_TERMS = (
    Term(name="host_tokens", words="of the cached prompt in processor memory", unit=Unit.TOKENS),
    Term(name="disk_tokens", words="of the cached prompt on disk", unit=Unit.TOKENS),
    Term(name="remote_tokens", words="of the cached prompt in a remote store", unit=Unit.TOKENS),
    Term(name="load_seconds", words="to load them", unit=Unit.SECONDS),
)
"""Terms of candidates that hold some of the prompt in cache tiers outside their GPU. `load_seconds` is absent while the
loading time is unknown.
"""

COMMON_RULES = (
    DecisionRule(code=ONLY_INSTANCE, because="no other instance could take it"),
    DecisionRule(code=QUEUE_FULL, because="the queue of the policy's own choice was full"),
    DecisionRule(
        code=NO_PREFILL,
        because=(
            "no prefill instance could take the request; among the decode instances, which compute prompts too, "
            "this one had the fewest tokens waiting"
        ),
        order=("pending_tokens",),
    ),
    DecisionRule(
        code=INDIVISIBLE,
        because=(
            "one instance must compute both prompt and answer of this request; among the decode instances, this "
            "one had the fewest tokens waiting"
        ),
        order=("pending_tokens",),
    ),
    DecisionRule(
        code=OUTSIDE_SUBSET,
        because="the gateway does not allow the policy's own choice; among the allowed endpoints, this one had the fewest tokens waiting",
        order=("pending_tokens",),
    ),
    DecisionRule(
        code=IDLE_INSTANCE,
        because=(
            "estimates alone would have refused the request, so an idle instance takes it; among the idle instances, "
            "this one has the least to compute"
        ),
        order=("miss_tokens",),
    ),
    DecisionRule(code=STAYS_PAUSED, because="its session is bound there, and the pool's migrations are paused"),
    DecisionRule(code=MOVED_BY_PERSON, because="a person moved the session there"),
    DecisionRule(code=NOT_WEIGHED, because="the comparison was not recorded, because there was no reason to keep the decision at the time"),
    DecisionRule(code=NOBODY, because="no instance could take the request"),
    DecisionRule(
        code=GAIN_TOO_SMALL,
        because=(
            "its session is bound there, and a move to the instance that the policy would have chosen was predicted to gain too little time"
        ),
        given=(Comparison(term="gain_seconds", holds=Holds.AT_MOST, against="least_gain_seconds"),),
    ),
)
"""The rules that take precedence over the rules of each policy."""
QUEUE_LIMIT = Limit(name="queue_limit", words="maximum number of requests in a queue", unit=Unit.REQUESTS)
GAIN = Limit(name="gain_seconds", words="gain predicted for leaving", unit=Unit.SECONDS)
LEAST_GAIN = Limit(name="least_gain_seconds", words="least gain that moves a session", unit=Unit.SECONDS)
COMMON_LIMITS = (QUEUE_LIMIT, GAIN, LEAST_GAIN)
"""Limits that apply to every policy."""


def better(term: Term, one: float, other: float) -> bool:
    """Return whether `one` is a better value of the term than `other`."""
    return one < other if term.better is Better.LOWER else one > other
