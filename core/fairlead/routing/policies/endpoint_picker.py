"""Endpoint picker: runs the filters, weighted scorers and picker that an llm-d `EndpointPickerConfig` declares."""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.decisions import Weighing
from fairlead.reports.moves import MoveCause
from fairlead.routing.choosing.candidates import ordered_decision
from fairlead.routing.choosing.considered import Considered
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.endpoint_picker_configs import DEFAULT_CONFIG, read_endpoint_picker_config
from fairlead.routing.choosing.move_causes import by_score, listed, stay_and_go
from fairlead.routing.choosing.pickers import BEST, DRAWN, DRAWN_BY_SCORE
from fairlead.routing.choosing.profiles import BEST_OF_NONE, BEST_PASSING
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.parameters import HomeParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import TOTAL, Better, DecisionRule, PolicyTerms, Term, Unit
from fairlead.schemas.shapes import free

CONFIG = "spec.routing.parameters.config"

TERMS = {
    "queue_score": "short queue × weight",
    "kv_score": "free KV cache × weight",
    "prefix_score": "cached prefix × weight",
    "running_score": "few running requests × weight",
    "active_score": "few requests × weight",
    "load_score": "queue below its threshold × weight",
    "token_score": "tokens below their threshold × weight",
    "cold_score": "longest without a new prompt × weight",
    "session_score": "home of the session × weight",
}
"""The terms of all scorers, in words. A decision records the scores of the scorers in its configuration file, and 0 for
all others.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPickerParameters(HomeParameters):
    """Parameters of `endpoint-picker`."""

    config: dict[str, Any] = free("An EndpointPickerConfig of llm-d, as in its file; default: llm-d's own default configuration.")

    def __post_init__(self) -> None:
        """Check the configuration file. Raises InvalidInput if Fairlead cannot run it."""
        read_endpoint_picker_config(self.document, CONFIG)

    @property
    def document(self) -> Mapping[str, Any]:
        """The configuration file in use."""
        return self.config or DEFAULT_CONFIG

    @property
    def expected_seconds(self) -> float:
        """Seconds for which a prompt's blocks are assumed to be cached before KV events confirm them: the larger of the
        file's value and the parameter `speculative_seconds`.
        """
        return max(self.speculative_seconds, read_endpoint_picker_config(self.document, CONFIG).expected_seconds)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes on the parts of the configuration file that have no effect, one line each; paths are relative to
        `config`.
        """
        return read_endpoint_picker_config(self.document, "config").notes


class EndpointPicker:
    """The policy `endpoint-picker`. It binds sessions to instances if a plugin of its configuration file needs these
    bindings.
    """

    name = "endpoint-picker"

    def __init__(self, parameters: EndpointPickerParameters, seed: int) -> None:
        plan = read_endpoint_picker_config(parameters.document, CONFIG)
        self._profile = plan.profile
        self._dice = Dice(seed)
        self.binds = plan.keeps_homes

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        seen = Considered.of(request, view, now)
        picked = self._profile.run(seen, self._dice)

        def terms(index: int) -> dict[str, float]:
            return {name: float(picked.terms[name][index]) if name in picked.terms else 0.0 for name in TERMS}

        binding = view.binding(request.session) if self.binds and request.session is not None else None
        home = None if binding is None else binding.instance
        if picked.passing is not None and all(seen.loads[index].entry.id != home for index in picked.passing):
            home = None  # nobody gave it a score
        decision = ordered_decision(
            request,
            view,
            picked.order,
            seen.hits,
            picked.totals,
            DecisionReason.BEST_SCORE,
            picked.rule,
            terms=terms,
            home=home,
        )
        return replace(decision, fallbacks=decision.fallbacks[: picked.count - 1])

    def cause_to_leave(self, request: RoutingRequest, home: Binding, weighed: Weighing, view: PoolView, now: float) -> MoveCause:
        """See `KeepsHomes.cause_to_leave`."""
        if listed(weighed, home.instance) is None:
            return MoveCause(trigger=BindingReason.FILTERED_OUT)
        if weighed.rule in (DRAWN, DRAWN_BY_SCORE):
            return MoveCause(trigger=BindingReason.DRAWN)
        return by_score(*stay_and_go(weighed, home.instance))


ENTRY = PolicyEntry(
    name=EndpointPicker.name,
    intent="Runs an EndpointPickerConfig of llm-d: filters, weighted scorers, a picker.",
    build=EndpointPicker,
    parameters=EndpointPickerParameters,
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="score", unit=Unit.SCORE, better=Better.HIGHER),
        parts=tuple(TERMS),
        terms=tuple(Term(name=name, words=words, unit=Unit.SCORE, better=Better.HIGHER) for name, words in TERMS.items()),
        rules=(
            DecisionRule(code=BEST, because="its score was the best", order=(TOTAL,), ties="by chance"),
            DecisionRule(
                code=BEST_PASSING, because="its score was the best of those that passed the filters", order=(TOTAL,), ties="by chance"
            ),
            DecisionRule(
                code=BEST_OF_NONE,
                because="no instance passed the filters; of all instances, its score was the best",
                order=(TOTAL,),
                ties="by chance",
            ),
            DecisionRule(code=DRAWN_BY_SCORE, because="it was drawn at random, with a probability proportional to its score"),
            DecisionRule(code=DRAWN, because="it was drawn at random"),
        ),
    ),
)
