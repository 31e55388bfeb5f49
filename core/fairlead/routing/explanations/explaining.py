"""Sentences about decisions, made only from recorded facts, so that each sentence can be checked against the numbers
shown with it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from fairlead.amounts import amount
from fairlead.percentages import percentage
from fairlead.routing.contracts.weighing import PASSED_OVER, TOTAL, Better, Comparison, DecisionRule, Holds, Term, Unit, better
from fairlead.routing.explanations.forecasts import forecast


class Candidate(Protocol):
    """One instance that the policy compared; see `fairlead.reports.decisions.CandidateScore`."""

    @property
    def instance(self) -> str: ...

    @property
    def hit_tokens(self) -> int: ...

    @property
    def pending_tokens(self) -> int: ...

    @property
    def predicted_ttft_seconds(self) -> float: ...

    @property
    def total(self) -> float | None: ...

    @property
    def terms(self) -> Mapping[str, float]: ...


class LimitInForce(Protocol):
    """A threshold or weight that the decision used, with its value."""

    @property
    def name(self) -> str: ...

    @property
    def words(self) -> str: ...

    @property
    def unit(self) -> Unit: ...

    @property
    def value(self) -> float: ...


class WeighedDecision(Protocol):
    """The fields of a decision's public record from which sentences are made."""

    @property
    def chosen(self) -> str: ...

    @property
    def target(self) -> str:
        """The chosen instance or rank, by its name in `candidates`."""

    @property
    def rule(self) -> DecisionRule: ...

    @property
    def terms(self) -> Sequence[Term]: ...

    @property
    def limits(self) -> Sequence[LimitInForce]: ...

    @property
    def candidates(self) -> Sequence[Candidate]: ...

    @property
    def session(self) -> str | None: ...

    @property
    def named(self) -> str | None: ...

    @property
    def passed_over(self) -> str | None: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def held_seconds(self) -> float | None: ...

    @property
    def ttft_seconds(self) -> float | None: ...

    @property
    def served_by(self) -> str | None: ...

    @property
    def served_target(self) -> str | None: ...

    @property
    def decode(self) -> str | None: ...


def explain(decision: WeighedDecision) -> str:
    """Return sentences with the reason for the choice of the instance, the cached part of the prompt, and the predicted
    and the actual TTFT.
    """
    chosen = candidate(decision, decision.target)
    sentences = [f"{decision.target} was chosen: {decision.rule.because}."]
    if chosen is None:
        return f"{sentences[0]} The comparison was not recorded."
    sentences += [_condition(decision, condition, chosen) for condition in decision.rule.given]
    sentences.append(_comparison(decision, chosen))
    if decision.prompt_tokens:
        share = chosen.hit_tokens / decision.prompt_tokens
        sentences.append(
            f"It held {chosen.hit_tokens:,} of {decision.prompt_tokens:,} prompt tokens ({percentage(share)}), "
            f"with {amount(chosen.pending_tokens, 'token')} waiting ahead."
        )
        sentences.append(_tiers(chosen))
    if decision.held_seconds:
        sentences.append(
            f"Before that, the request was held for {in_words(decision.held_seconds, Unit.SECONDS)}: no instance accepted requests."
        )
    if decision.named is not None:
        own = "it was placed as a request without a session" if decision.session is None else f"it was placed as {decision.session}"
        sentences.append(f"Its client names the session {decision.named}, but several conversations share that name: {own}.")
    sentences.append(_prediction(decision, chosen))
    if decision.decode == decision.chosen:
        sentences.append(f"In the end it only decoded: {decision.served_by or 'another instance'} computed the prompt.")
    elif decision.decode is not None:
        sentences.append(f"It was chosen to compute only the prompt; {decision.decode} decodes.")
    return " ".join(sentence for sentence in sentences if sentence)


_TIERS = {"host_tokens": "in processor memory", "disk_tokens": "on disk", "remote_tokens": "in a remote store"}


def _tiers(chosen: Candidate) -> str:
    """Return a clause with the number of cached tokens that are not on the GPU, and the time to load them."""
    held = [f"{chosen.terms[name]:,.0f} {where}" for name, where in _TIERS.items() if name in chosen.terms]
    if not held:
        return ""
    seconds = chosen.terms.get("load_seconds")
    known = (
        "their load time is not known yet and was left out"
        if seconds is None
        else f"loading them was predicted to take {in_words(seconds, Unit.SECONDS)}"
    )
    return f"Of these, {' and '.join(held)}: {known}."


def candidate(decision: WeighedDecision, instance: str | None) -> Candidate | None:
    """Return the decision's candidate for this instance; None if it is not recorded."""
    return next((one for one in decision.candidates if one.instance == instance), None)


def term_of(decision: WeighedDecision, name: str) -> Term | None:
    return next((term for term in decision.terms if term.name == name), None)


def value_of(one: Candidate, name: str) -> float | None:
    """The candidate's value of a term; None if the candidate does not have the term."""
    if name in one.terms:
        return one.terms[name]
    found = getattr(one, name, None)
    return None if found is None else float(found)


def limit_of(decision: WeighedDecision, name: str) -> LimitInForce | None:
    return next((limit for limit in decision.limits if limit.name == name), None)


def sides(decision: WeighedDecision, condition: Comparison, chosen: Candidate) -> tuple[float | None, float | None]:
    """Return the two numbers that a condition compares. None stands for a number that was not recorded."""
    subject = candidate(decision, decision.passed_over) if condition.of == PASSED_OVER else chosen
    own = limit_of(decision, condition.term)
    left = own.value if own is not None else None if subject is None else value_of(subject, condition.term)
    if condition.against == "chosen":
        return left, value_of(chosen, condition.term)
    limit = limit_of(decision, condition.against)
    return left, None if limit is None else limit.value


def holds(condition: Comparison, left: float, right: float) -> bool:
    return left > right if condition.holds is Holds.ABOVE else left <= right


def eligible(decision: WeighedDecision) -> list[Candidate]:
    """Return the candidates that the rule compared."""
    among = decision.rule.among
    limit = None if among is None else limit_of(decision, among.against)
    if among is None or limit is None:
        return list(decision.candidates)
    found: list[Candidate] = []
    for one in decision.candidates:
        value = value_of(one, among.term)
        if value is not None and holds(among, value, limit.value):
            found.append(one)
    return found


def deciding(decision: WeighedDecision, one: Candidate, other: Candidate) -> tuple[Term, float, float] | None:
    """Return the first term in the rule's order in which the two candidates differ, with the value of each candidate;
    None if the candidates are equal in all terms.
    """
    for name in decision.rule.order:
        term = term_of(decision, name)
        mine, theirs = value_of(one, name), value_of(other, name)
        if term is not None and mine is not None and theirs is not None and mine != theirs:
            return term, mine, theirs
    return None


def beats(decision: WeighedDecision, one: Candidate, other: Candidate) -> bool:
    """Return whether `one` is strictly better than `other` in the rule's order of terms."""
    found = deciding(decision, one, other)
    return found is not None and better(found[0], found[1], found[2])


def runner_up(decision: WeighedDecision, chosen: Candidate) -> Candidate | None:
    """Return the second best candidate: the best candidate by the rule's order of terms, without the chosen candidate;
    None if there is no other candidate.
    """
    best: Candidate | None = None
    for one in eligible(decision):
        if one.instance != chosen.instance and (best is None or beats(decision, one, best)):
            best = one
    return best


def in_words(value: float, unit: Unit, digits: int = 2) -> str:
    """Return a value with its unit: `6.90 s`, `42 ms`, `3,584 tokens`, `46 %`. A negative number of tokens is a lack of
    free tokens, and becomes "over-committed by … tokens".
    """
    if unit is Unit.TOKENS and value < 0:
        return f"over-committed by {in_words(-value, unit, digits)}"
    if unit is Unit.SECONDS:
        if abs(value) < 0.9995:
            return f"{value * 1000:.{max(0, digits - 2)}f} ms"
        return f"{value:.{digits}f} s" if abs(value) < 9.995 or digits > 2 else f"{value:.1f} s"
    if unit is Unit.SHARE:
        return f"{value:.{max(0, digits - 2)}%}"
    if unit is Unit.SCORE:
        return f"{value:,.{digits + 1}f}"
    is_whole = value == round(value) or (unit is Unit.TOKENS and digits == 2 and abs(value) >= 10)
    number = f"{value:,.0f}" if is_whole else f"{value:,.{digits - 1}f}"
    return f"{number} {unit.value.removesuffix('s') if number == '1' else unit.value}"


def pair_in_words(one: float, other: float, unit: Unit) -> tuple[str, str]:
    """Return both values in words, with enough digits to show that they differ."""
    for digits in (2, 4, 6, 9):
        words = in_words(one, unit, digits), in_words(other, unit, digits)
        if words[0] != words[1] or one == other:
            return words
    return repr(one), repr(other)


def _comparison(decision: WeighedDecision, chosen: Candidate) -> str:
    if not decision.rule.order:
        return _overridden(decision, chosen)
    other = runner_up(decision, chosen)
    if other is None:
        return ""
    found = deciding(decision, chosen, other)
    if found is None:
        names = [term.words for name in decision.rule.order if (term := term_of(decision, name)) is not None]
        return f"{other.instance} is equal in {' and '.join(names)}; such a tie goes {decision.rule.ties}."
    term, mine, theirs = found
    words = pair_in_words(mine, theirs, term.unit)
    return f"{_capital(term.words)}: {words[0]} against {words[1]} on {other.instance}, {term.better} is better."


def _overridden(decision: WeighedDecision, chosen: Candidate) -> str:
    """Return a clause with the instance that has the best score, if the rule ignores the score and chose another
    instance; otherwise "" (empty).
    """
    total = term_of(decision, TOTAL)
    if total is None or chosen.total is None:
        return ""
    others = [one for one in decision.candidates if one.total is not None and better(total, one.total, chosen.total)]
    if not others:
        return ""
    sign = 1 if total.better is Better.LOWER else -1
    best = min(others, key=lambda one: sign * (one.total or 0.0))
    words = pair_in_words(chosen.total, best.total or 0.0, total.unit)
    return f"The rule overrides the score: {total.words} is {words[0]} against {words[1]} on {best.instance}, {total.better} is better."


def _condition(decision: WeighedDecision, condition: Comparison, chosen: Candidate) -> str:
    left, right = sides(decision, condition, chosen)
    if left is None or right is None:
        return ""
    own, limit = limit_of(decision, condition.term), limit_of(decision, condition.against)
    term = term_of(decision, condition.term)
    what = own.words if own is not None else term.words if term is not None else condition.term
    unit = own.unit if own is not None else term.unit if term is not None else Unit.SCORE
    values = pair_in_words(left, right, unit)
    where = "" if own is not None else f" on {decision.passed_over if condition.of == PASSED_OVER else chosen.instance}"
    against = f"{values[1]} on {chosen.instance}" if limit is None else f"the limit of {values[1]} ({limit.words})"
    stands = "above" if condition.holds is Holds.ABOVE else "not above"
    return f"{_capital(what)}{where}: {values[0]}, {stands} {against}."


def _prediction(decision: WeighedDecision, chosen: Candidate) -> str:
    elsewhere = decision.served_target is not None and decision.served_target != decision.target
    words = in_words(chosen.predicted_ttft_seconds, Unit.SECONDS)
    found = forecast(chosen.predicted_ttft_seconds, decision.ttft_seconds, decision.held_seconds, elsewhere=elsewhere)
    if found is None:
        return f"Its first token was predicted in {words}; no first token was reported."
    real = in_words(found.actual_seconds, Unit.SECONDS) + (", without the time for which it was held" if decision.held_seconds else "")
    if elsewhere:
        return (
            f"Its first token was predicted in {words}; the request moved to {decision.served_target}, where its "
            f"first token came after {real}."
        )
    if not found.is_far_off:
        return f"Its first token was predicted in {words} and came in {real}."
    off, direction = in_words(abs(found.off_seconds), Unit.SECONDS), "too late" if found.off_seconds > 0 else "too early"
    return f"Its first token was predicted in {words} but came in {real}: the prediction was far off, {off} {direction}."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
