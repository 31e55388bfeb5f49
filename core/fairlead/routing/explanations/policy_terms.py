"""What each policy of the catalogue compares and the rules it decides by. Nothing here loads numpy or a policy."""

from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.routing.contracts.weighing import (
    COMMON_RULES,
    COMMON_TERMS,
    NOT_RECORDED,
    PASSED_OVER,
    QUEUE_LIMIT,
    TOTAL,
    Better,
    Condition,
    Holds,
    Limit,
    PolicyTerms,
    Rule,
    Term,
    Unit,
)

_DECODES = Term(name="decode_tokens", words="held by running decodes", unit=Unit.TOKENS)
_REQUEST_COUNT = Term(name=TOTAL, words="requests there", unit=Unit.REQUESTS)
_BEST_SCORE = Rule(code="best-score", because="its score was the best", order=(TOTAL,), ties="to the less loaded, then by id")
_HOST_STAYS = "its session lives there"
_HOST_GONE = "the session's host was gone, and it had the fewest tokens waiting"

POLICY_TERMS: Mapping[str, PolicyTerms] = {
    "fairlead": PolicyTerms(
        total=Term(name=TOTAL, words="cost", unit=Unit.SECONDS),
        parts=("wait_seconds", "weighted_prefill_seconds", "kv_seconds"),
        terms=(
            Term(name="wait_seconds", words="wait", unit=Unit.SECONDS),
            Term(name="weighted_prefill_seconds", words="prefill × affinity", unit=Unit.SECONDS),
            Term(name="kv_seconds", words="for a full KV cache", unit=Unit.SECONDS),
            Term(name="prefill_seconds", words="prefill", unit=Unit.SECONDS),
            _DECODES,
        ),
        limits=(
            Limit(name="affinity", words="worth of a second of prefill at this load", unit=Unit.SCORE),
            Limit(name="in_time_seconds", words="predicted TTFT that counts as in time", unit=Unit.SECONDS),
        ),
        rules=(
            Rule(code="lowest-cost", because="its cost was the lowest", order=(TOTAL, "decode_tokens")),
            Rule(
                code="in-time-first",
                because="its cost was the lowest of those predicted to be in time",
                order=(TOTAL, "decode_tokens"),
                among=Condition(term="predicted_ttft_seconds", holds=Holds.AT_MOST, against="in_time_seconds"),
                given=(Condition(of=PASSED_OVER, term="predicted_ttft_seconds", holds=Holds.ABOVE, against="in_time_seconds"),),
            ),
        ),
    ),
    "round-robin": PolicyTerms(rules=(Rule(code="next-in-turn", because="its turn had come"),)),
    "least-loaded": PolicyTerms(
        total=Term(name=TOTAL, words="waiting ahead", unit=Unit.TOKENS),
        terms=(_DECODES,),
        rules=(
            Rule(
                code="least-pending",
                because="it had the fewest tokens waiting",
                order=(TOTAL, "decode_tokens"),
                ties="to the one chosen longest ago",
            ),
        ),
    ),
    "cache-affinity": PolicyTerms(
        rules=(
            Rule(code="ring-owner", because="it owns the prefix's place on the ring"),
            Rule(code="ring-next", because="the owner of the prefix's place on the ring takes no requests, and it is the next clockwise"),
        )
    ),
    "dualmap": PolicyTerms(
        total=Term(name=TOTAL, words="load with this request", unit=Unit.TOKENS),
        parts=("pending_tokens", "miss_tokens"),
        terms=(_DECODES,),
        limits=(Limit(name="overload_tokens", words="load at which the TTFT target is endangered", unit=Unit.TOKENS),),
        rules=(
            Rule(
                code="longest-hit",
                because="it held the most of the prompt among the instances its prefix may go to; equal ones go to the less loaded",
                order=("hit_tokens", "pending_tokens", "decode_tokens"),
            ),
            Rule(
                code="slo-guard",
                because="the instance that held more of the prompt would have endangered the TTFT target",
                order=(TOTAL,),
                given=(
                    Condition(of=PASSED_OVER, term=TOTAL, holds=Holds.ABOVE, against="overload_tokens"),
                    Condition(of=PASSED_OVER, term=TOTAL, holds=Holds.ABOVE, against="chosen"),
                ),
            ),
            Rule(code="only-named", because="it was the only one of the instances its prefix may go to that takes requests"),
            Rule(
                code="none-named",
                because="none of the instances its prefix may go to takes requests, and it had the fewest tokens waiting",
                order=("pending_tokens", "decode_tokens"),
            ),
        ),
    ),
    "ear": PolicyTerms(
        total=Term(name=TOTAL, words="waiting ahead", unit=Unit.TOKENS),
        terms=(
            Term(name="sessions", words="sessions bound there", unit=Unit.SESSIONS),
            Term(name="free_kv_tokens", words="free in the KV cache", unit=Unit.TOKENS, better=Better.HIGHER),
        ),
        limits=(
            Limit(name="hot_tokens", words="load at which a host counts as hot", unit=Unit.TOKENS),
            Limit(name="cooldown_seconds", words="least time between two migrations of a session", unit=Unit.SECONDS),
            Limit(name="since_migration_seconds", words="time since the session last migrated", unit=Unit.SECONDS),
        ),
        rules=(
            Rule(
                code="host-not-hot",
                because=f"{_HOST_STAYS} and it is not hot",
                given=(Condition(term=TOTAL, holds=Holds.AT_MOST, against="hot_tokens"),),
            ),
            Rule(
                code="host-hot-cooldown",
                because=f"{_HOST_STAYS}; it is hot, but the session migrated too recently",
                given=(
                    Condition(term=TOTAL, holds=Holds.ABOVE, against="hot_tokens"),
                    Condition(term="since_migration_seconds", holds=Holds.AT_MOST, against="cooldown_seconds"),
                ),
            ),
            Rule(
                code="host-hot-no-cooler",
                because=f"{_HOST_STAYS}; it is hot, but no cooler instance with room would have been worth the move",
                given=(Condition(term=TOTAL, holds=Holds.ABOVE, against="hot_tokens"),),
            ),
            Rule(code="host-stays", because=f"{_HOST_STAYS}, and migration is switched off"),
            Rule(
                code="host-hot-left",
                because="the session's host was hot, and it was the least loaded instance with room for the session",
                given=(
                    Condition(of=PASSED_OVER, term=TOTAL, holds=Holds.ABOVE, against="hot_tokens"),
                    Condition(of=PASSED_OVER, term=TOTAL, holds=Holds.ABOVE, against="chosen"),
                ),
            ),
            Rule(
                code="first-placement",
                because="the session is new, and it had the fewest tokens waiting",
                order=(TOTAL, "sessions"),
            ),
            Rule(code="host-gone", because=_HOST_GONE, order=(TOTAL, "sessions")),
        ),
    ),
    "random": PolicyTerms(rules=(Rule(code="drawn", because="it was drawn by chance"),)),
    "least-request": PolicyTerms(
        total=_REQUEST_COUNT, rules=(Rule(code="fewest-requests", because="it had the fewest requests", order=(TOTAL,), ties="by chance"),)
    ),
    "min-ttft": PolicyTerms(
        total=Term(name=TOTAL, words="predicted TTFT", unit=Unit.SECONDS),
        terms=(_DECODES,),
        rules=(Rule(code="shortest-ttft", because="its predicted TTFT was the shortest", order=(TOTAL, "decode_tokens")),),
    ),
    "sticky": PolicyTerms(
        rules=(
            Rule(code="host-stays", because=_HOST_STAYS),
            Rule(
                code="first-placement", because="the session is new, and it is the nearest clockwise from the session's place on the ring"
            ),
            Rule(
                code="host-gone",
                because="the session's host was gone, and it is the nearest clockwise from the session's place on the ring",
            ),
        )
    ),
    "prefix-cache-load": PolicyTerms(
        total=_REQUEST_COUNT,
        limits=(
            Limit(name="imbalance", words="distance between the most and the fewest requests", unit=Unit.REQUESTS),
            Limit(name="imbalance_requests", words="distance that is still balanced", unit=Unit.REQUESTS),
            Limit(name="crowding_bound", words="requests above which an instance is crowded", unit=Unit.SCORE),
        ),
        rules=(
            Rule(
                code="imbalanced",
                because="the pool was out of balance, and it had the fewest requests",
                order=(TOTAL,),
                given=(Condition(term="imbalance", holds=Holds.ABOVE, against="imbalance_requests"),),
                ties="by chance",
            ),
            Rule(
                code="longest-match",
                because="it held the most of the prompt among those that were not crowded",
                order=("hit_tokens", TOTAL),
                among=Condition(term=TOTAL, holds=Holds.AT_MOST, against="crowding_bound"),
            ),
            Rule(code="fewest-requests", because="nobody uncrowded held any of the prompt, and it had the fewest requests", order=(TOTAL,)),
        ),
    ),
    "prefix-cache-threshold": PolicyTerms(
        total=_REQUEST_COUNT,
        limits=(Limit(name="match_tokens", words="cached prompt that is followed", unit=Unit.TOKENS),),
        rules=(
            Rule(
                code="longest-match",
                because="it held the most of the prompt, and enough of it",
                order=("hit_tokens", TOTAL),
                given=(Condition(term="hit_tokens", holds=Holds.ABOVE, against="match_tokens"),),
            ),
            Rule(
                code="fewest-requests",
                because="nobody held enough of the prompt, and it had the fewest requests",
                order=(TOTAL,),
                given=(Condition(term="hit_tokens", holds=Holds.AT_MOST, against="match_tokens"),),
                ties="by chance",
            ),
        ),
    ),
    "lmetric": PolicyTerms(
        total=Term(name=TOTAL, words="tokens × requests", unit=Unit.SCORE),
        terms=(
            Term(name="prefill_tokens", words="load with this request", unit=Unit.TOKENS),
            Term(name="batch", words="requests with this one", unit=Unit.REQUESTS),
        ),
        rules=(Rule(code="best-score", because="its product of tokens and requests was the lowest", order=(TOTAL, "batch")),),
    ),
    "dynamo": PolicyTerms(
        total=Term(name=TOTAL, words="score", unit=Unit.SCORE, better=Better.HIGHER),
        parts=("overlap_score", "load_score"),
        terms=(
            Term(name="overlap_score", words="cached share × weight", unit=Unit.SCORE, better=Better.HIGHER),
            Term(name="load_score", words="load share × weight, negative", unit=Unit.SCORE, better=Better.HIGHER),
        ),
        rules=(_BEST_SCORE,),
    ),
    "cache-load-linear": PolicyTerms(
        total=Term(name=TOTAL, words="score", unit=Unit.SCORE, better=Better.HIGHER),
        parts=("cache_score", "idle_score"),
        terms=(
            Term(name="cache_score", words="cached share × weight", unit=Unit.SCORE, better=Better.HIGHER),
            Term(name="idle_score", words="idleness × weight", unit=Unit.SCORE, better=Better.HIGHER),
        ),
        rules=(_BEST_SCORE,),
    ),
    "heimdall": PolicyTerms(
        total=Term(name=TOTAL, words="score", unit=Unit.SCORE, better=Better.HIGHER),
        parts=("queue_score", "kv_score", "prefix_score"),
        terms=(
            Term(name="queue_score", words="short queue × weight", unit=Unit.SCORE, better=Better.HIGHER),
            Term(name="kv_score", words="free KV cache × weight", unit=Unit.SCORE, better=Better.HIGHER),
            Term(name="prefix_score", words="cached prefix × weight", unit=Unit.SCORE, better=Better.HIGHER),
        ),
        rules=(Rule(code="best-score", because="its score was the best", order=(TOTAL,), ties="by chance"),),
    ),
    "preble": PolicyTerms(
        total=Term(name=TOTAL, words="cost", unit=Unit.SECONDS),
        parts=("work_seconds", "decode_seconds", "eviction_seconds", "prefill_seconds"),
        terms=(
            Term(name="work_seconds", words="recent work", unit=Unit.SECONDS),
            Term(name="decode_seconds", words="decodes", unit=Unit.SECONDS),
            Term(name="eviction_seconds", words="what would be evicted", unit=Unit.SECONDS),
            Term(name="prefill_seconds", words="prefill", unit=Unit.SECONDS),
        ),
        limits=(Limit(name="longest_tokens", words="most of the prompt that anybody holds", unit=Unit.TOKENS),),
        rules=(
            Rule(
                code="prefix-followed",
                because="it held most of the prompt, and cost the least of those that did",
                order=("hit_tokens", TOTAL),
            ),
            Rule(code="prefix-given", because="rebalancing gave it the prompt's prefix"),
            Rule(code="prefix-explored", because="nobody held half of the prompt, and its cost was the lowest", order=(TOTAL,)),
        ),
    ),
    "mooncake": PolicyTerms(
        total=Term(name=TOTAL, words="predicted TTFT, fetching included", unit=Unit.SECONDS),
        terms=(Term(name="fetched_tokens", words="of the prompt to be fetched", unit=Unit.TOKENS),),
        rules=(Rule(code="shortest-ttft", because="its predicted TTFT was the shortest", order=(TOTAL,)),),
    ),
    "static-pd": PolicyTerms(
        total=Term(name=TOTAL, words="waiting ahead", unit=Unit.TOKENS),
        terms=(_DECODES,),
        rules=(Rule(code="least-pending", because="it had the fewest tokens waiting", order=(TOTAL, "decode_tokens")),),
    ),
}
"""By policy. Complete: a test holds it against the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitValue(Limit):
    """A limit with its value in one decision."""

    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a recorded decision was made by, looked up: all that a sentence or a check needs beside the candidates."""

    rule: Rule
    terms: tuple[Term, ...]
    parts: tuple[str, ...]
    limits: tuple[LimitValue, ...]


def ground_of(policy: str, code: str, limits: Mapping[str, float]) -> Ground:
    """The rule, terms and limits of a decision of `policy`; a rule this version does not know stands for itself."""
    known = POLICY_TERMS.get(policy)
    unknown = Rule(
        code=code, because="the rule that decided is not known to this version" if code != NOT_RECORDED else "the rule was not recorded"
    )
    named = limits_of(policy)
    values = [(named.get(name, Limit(name=name, words=name, unit=Unit.SCORE)), value) for name, value in limits.items()]
    return Ground(
        rule=rule_of(policy, code) or unknown,
        terms=tuple(terms_of(policy).values()),
        parts=() if known is None else known.parts,
        limits=tuple(LimitValue(name=limit.name, words=limit.words, unit=limit.unit, value=value) for limit, value in values),
    )


def rule_of(policy: str, code: str) -> Rule | None:
    """The rule of this code; None when this version does not know it."""
    known = POLICY_TERMS.get(policy)
    rules = COMMON_RULES if known is None else (*COMMON_RULES, *known.rules)
    return next((rule for rule in rules if rule.code == code), None)


def terms_of(policy: str) -> dict[str, Term]:
    """Terms by name: the common ones, the policy's own and its total."""
    known = POLICY_TERMS.get(policy)
    found = {term.name: term for term in COMMON_TERMS}
    if known is not None:
        found |= {term.name: term for term in known.terms}
        if known.total is not None:
            found[TOTAL] = known.total
    return found


def limits_of(policy: str) -> dict[str, Limit]:
    known = POLICY_TERMS.get(policy)
    return {limit.name: limit for limit in (QUEUE_LIMIT, *(known.limits if known is not None else ()))}
