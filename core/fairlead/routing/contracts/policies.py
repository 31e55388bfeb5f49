"""The interface of routing policies: what a policy may see, and what it is asked.

A policy is chosen by name, built from a routing table, and asked to choose. It sees a `PoolView` (the accounting at
this instant), never the network.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fairlead.predictors.learners import LearnerSettings
from fairlead.predictors.models import Model
from fairlead.predictors.reports import LearningReport
from fairlead.predictors.samples import Samples
from fairlead.reports.bindings import Binding
from fairlead.reports.decisions import Weighing
from fairlead.reports.moves import MoveCause
from fairlead.routing.contracts.decisions import Decision
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import QueuedRequest, RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, IntVector, PoolVectors
from fairlead.tables import ModelledFacts, RoutingTable
from fairlead.values import value


@value
class FetchSpeed:
    """How fast instances fetch KV blocks from each other: `size` per token at `rate` per second, both in bytes where
    those are known, else in tokens; and seconds before the first one comes.
    """

    size: float
    rate: float
    latency_seconds: float


def modelled_fetching(modelled: ModelledFacts) -> FetchSpeed | None:
    """The speed of a model's engines, which fetch without being asked; None where they do not."""
    if modelled.kv_transfer_bytes_per_second <= 0:
        return None
    latency = modelled.kv_transfer_latency_seconds
    return FetchSpeed(size=modelled.kv_bytes_per_token, rate=modelled.kv_transfer_bytes_per_second, latency_seconds=latency)


class PoolView(Protocol):
    """What a policy may look at."""

    @property
    def table(self) -> RoutingTable: ...

    def candidates(self) -> Sequence[InstanceLoad]:
        """Accepting instances that prefill and whose circuit is closed, in stable order of id.

        Prefill instances are among them only while some instance takes decodes.
        """

    def decode_candidates(self) -> Sequence[InstanceLoad]:
        """Accepting instances of role decode whose circuit is closed (of role both if there is none of decode), in
        stable order of id.
        """

    def load(self, instance: str) -> InstanceLoad | None: ...

    def has_drained(self, instance: str) -> bool:
        """Whether it drained and is gone since; asked about the homes of sessions."""

    def hit_tokens(self, request: RoutingRequest, instance: str) -> int:
        """Leading prompt tokens the instance is believed to hold (< prompt_tokens: at least one
        token is always computed).
        """

    def hit_tokens_everywhere(self, request: RoutingRequest) -> Mapping[str, int]:
        """Instances with a hit > 0 only."""

    def block_tokens(self, request: RoutingRequest) -> int:
        """Tokens per block of the request's hits: the engines' own where KV events report the cached prefix, else
        the routing block.
        """

    def predicted_ttft_seconds(self, request: RoutingRequest, instance: str) -> float:
        """Seconds for the pending tokens there, minus the elapsed part of the prefill in flight, and this request's
        uncached tokens: by `prefill_speed`, or by the fit if the policy asks for it.
        """

    @property
    def prefill_speed(self) -> float:
        """Uncached prompt tokens per second and instance, to order choices by: as measured, else as declared."""

    def tokens_within(self, seconds: float) -> float:
        """Uncached prompt tokens that an instance computes in this time at its measured speed, for refusals and
        moves; infinite while no speed is measured.
        """

    def decode_seconds(self, context_tokens: float, requests: float) -> float:
        """Predicted seconds of one decode step over this many tokens and requests (TPOT); 0 while decode times are
        unknown.
        """

    def pool_load(self) -> float:
        """How full the pool is: seconds of prefill that come per second and instance, and the share of its time that
        decodes need to meet the TPOT target. At 1 there is no time left.
        """

    def step_seconds(self, load: InstanceLoad) -> float:
        """Predicted time of a decode step with all decodes on an instance, whichever router sent them."""

    def leanings(self, request: RoutingRequest, most_held: int) -> FloatVector | None:
        """Seconds to add to the cost of each of `candidates()`, so that routers that decide separately make choices
        that fit together; None to add nothing. `most_held` is the longest part of the prompt, in tokens, that an
        instance is known to hold.
        """

    def vectors(self) -> PoolVectors:
        """Counters of `candidates()`, entry by entry."""

    def hit_vector(self, request: RoutingRequest) -> IntVector:
        """`hit_tokens` on each of `candidates()`."""

    def ttft_vector(self, request: RoutingRequest, hits: IntVector) -> FloatVector:
        """Predicted TTFT in seconds on each of `candidates()`, if it held `hits` tokens of the prompt."""

    @property
    def is_tiered(self) -> bool:
        """Whether some of the hits that were asked for last may be outside GPUs."""

    def loading_vector(self, request: RoutingRequest) -> FloatVector | None:
        """Predicted seconds that each of `candidates()` needs to load what it holds of the prompt outside its GPU, as
        far as that is known; None if none holds any there. `ttft_vector` and `prefill_vector` include them.
        """

    def tier_terms(self, request: RoutingRequest, instance: str) -> dict[str, float]:
        """What an instance holds of the prompt outside its GPU, and how long it loads that, for the record of a
        decision (`weighing.TIER_TERMS`); empty if it holds none there.
        """

    def overtaken_seconds(self, request: RoutingRequest) -> FloatVector | None:
        """The part of `PoolVectors.wait_seconds` that would be sent after the request, as its class has a higher
        priority or its tenant has had less; None if nothing would.
        """

    def prefill_vector(self, request: RoutingRequest, hits: IntVector) -> FloatVector:
        """Predicted seconds of the prefill alone on each of `candidates()`, if it held `hits` tokens of the prompt."""

    def fetching(self, request: RoutingRequest) -> FetchSpeed | None:
        """How fast instances fetch KV blocks of the request's prompt from each other, as measured, declared or assumed;
        None where they cannot.
        """

    def prefill_seconds(self, request: RoutingRequest, hit_tokens: int) -> float:
        """Predicted seconds of the prefill alone on an instance that held this many tokens of the prompt on its GPU."""

    def binding(self, session: str) -> Binding | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMove:
    """A queued request that moves between queues, with the cause and the TTFTs predicted for it on both instances."""

    request: str
    source: str
    target: str
    cause: MoveCause
    source_ttft_seconds: float
    target_ttft_seconds: float


class Policy(Protocol):
    """A routing policy. Deterministic given its seed, its history and the view.

    A policy that does more than choose has the members of one or more of the protocols below; see `PolicyInForce`.
    """

    @property
    def name(self) -> str: ...

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        """Pick an instance. Called only when `view.candidates()` is not empty; must pick one of them."""


@runtime_checkable
class KeepsHomes(Protocol):
    """A policy that gives sessions a home: where a request is placed, its session is bound. No session leaves a home
    that could take its request without a stated cause, and for less than the least gain of the policy's parameters.
    """

    @property
    def binds(self) -> bool:
        """True."""

    def cause_to_leave(self, request: RoutingRequest, home: Binding, weighed: Weighing, view: PoolView, now: float) -> MoveCause:
        """Why the policy placed the request elsewhere although its session's `home` could take it.

        `weighed` has the terms that it compared. Called only in that case, and only with the numbers that decided.
        """


@runtime_checkable
class BindsBeginnings(Protocol):
    """A policy that gives homes to requests without a session too, by how their prompts begin."""

    def prefix_session(self, request: RoutingRequest) -> str:
        """The name by which the policy binds a request without a session."""


@runtime_checkable
class FollowsTable(Protocol):
    """A policy that keeps something of the table, such as a ring of its instances."""

    def table_changed(self, table: RoutingTable) -> None:
        """The instances or parameters changed. Called before the first choice too."""


@runtime_checkable
class RestrictsPlacement(Protocol):
    """A policy whose requests may wait at some instances only."""

    def placements(self, request: RoutingRequest) -> tuple[str, ...]:
        """Where the request may wait under the current table; empty = anywhere. Changes nothing."""


@runtime_checkable
class Rebalances(Protocol):
    """A policy that moves queued requests: of the instances that a decision names as overloaded, and several times a
    second of all that have a queue, unless it has `sweeps = False`.
    """

    def rebalance(
        self, overloaded: Sequence[str], queues: Mapping[str, Sequence[QueuedRequest]], view: PoolView, now: float
    ) -> Sequence[QueuedMove]:
        """Moves of queued requests to make now. A queue is put in order when it is first looked at."""


@runtime_checkable
class LearnsOnline(Protocol):
    """A policy that predicts with a model, trained outside of it on its requests' results. The owner of the scheduler
    hands the samples to a learner and brings back its models, in its own time.
    """

    @property
    def learner_settings(self) -> LearnerSettings:
        """How its models are to be trained."""

    def take_samples(self) -> Samples:
        """Observed results of requests since the last call, oldest first."""

    def adopt(self, model: Model) -> None:
        """Predict by `model` from the next choice on. Raises ModelRefused, and keeps the old, when it does not fit."""

    def learning(self) -> LearningReport:
        """Its training state, and how well it predicts."""


@runtime_checkable
class GatesDispatch(Protocol):
    """A policy that may hold queued requests back from an instance that has prefills in flight."""

    def may_dispatch(self, load: InstanceLoad, view: PoolView, now: float) -> bool:
        """Whether a further request may be sent to the instance. Not called for an instance without a prefill in
        flight.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInForce:
    """A policy with its optional protocols, looked up once."""

    choose: Callable[[RoutingRequest, PoolView, float], Decision]
    keeps_homes: KeepsHomes | None
    binds_beginnings: BindsBeginnings | None
    follows_table: FollowsTable | None
    restricts_placement: RestrictsPlacement | None
    rebalances: Rebalances | None
    learns_online: LearnsOnline | None
    gates_dispatch: GatesDispatch | None
    sweeps: bool
    """Whether it is asked about all queues several times a second."""

    @staticmethod
    def of(policy: Policy) -> "PolicyInForce":
        """Looks up which optional protocols the policy implements."""
        return PolicyInForce(
            choose=policy.choose,
            keeps_homes=policy if isinstance(policy, KeepsHomes) and policy.binds else None,
            binds_beginnings=policy if isinstance(policy, BindsBeginnings) else None,
            follows_table=policy if isinstance(policy, FollowsTable) else None,
            restricts_placement=policy if isinstance(policy, RestrictsPlacement) else None,
            rebalances=policy if isinstance(policy, Rebalances) else None,
            learns_online=policy if isinstance(policy, LearnsOnline) else None,
            gates_dispatch=policy if isinstance(policy, GatesDispatch) else None,
            sweeps=isinstance(policy, Rebalances) and getattr(policy, "sweeps", True),
        )
