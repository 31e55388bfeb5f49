"""Sampled routing decisions, with the reasons for each request's destination."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.reports.decisions import CandidateScore, DecisionReason, SampledDecision
from fairlead.routing.contracts.weighing import DecisionRule, Term
from fairlead.routing.explanations.grounds import LimitValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision(SampledDecision[str, datetime]):
    """A sampled decision: the router's record, and the fields that explain it.

    The winning candidate follows from `rule`, the candidates' values of the rule's terms, and `limits`. `terms` say in
    which unit and direction each term counts (`total` is one of them); `parts` name the terms that add up to the total.
    `candidates` are the chosen candidate, the next best candidate and the candidate that was passed over, out of
    `considered` instances.
    """

    pool: str
    at: datetime
    router: str
    candidates: list[CandidateScore]
    rule: DecisionRule
    terms: list[Term]
    parts: list[str]
    limits: list[LimitValue]
    considered: int
    passed_over: str | None
    explanation: str = ""
    """Sentences that explain the choice, made from the other fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """A reason for decisions, and how many decisions had it."""

    reason: DecisionReason
    decisions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionReasons:
    """The reasons of a pool's newest sampled decisions, the commonest first."""

    pool: str
    reasons: list[ReasonCount]
