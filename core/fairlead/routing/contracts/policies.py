"""The interface of routing policies: what a policy may read, and the methods it implements.

A policy is chosen by name, built from a routing table, and asked to choose an instance. It sees a `PoolView` (the
accounting at this instant), never the network.
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
    """The speed at which instances fetch KV blocks from each other: `size` per token at `rate` per second, both in
    bytes if known, else in tokens; and the seconds before the first block arrives.
    """

    size: float
    rate: float
    latency_seconds: float


def modelled_fetching(modelled: ModelledFacts) -> FetchSpeed | None:
    """Return the fetch speed of modelled engines, which fetch without being asked; None if they do not fetch."""
    if modelled.kv_transfer_bytes_per_second <= 0:
        return None
    latency = modelled.kv_transfer_latency_seconds
    return FetchSpeed(size=modelled.kv_bytes_per_token, rate=modelled.kv_transfer_bytes_per_second, latency_seconds=latency)


class PoolView(Protocol):
    """The state that a policy may read."""

    @property
    def table(self) -> RoutingTable: ...

    def candidates(self) -> Sequence[InstanceLoad]:
        """The accepting instances that prefill and whose circuit is closed, in stable order of id.

        Prefill instances are candidates only while some instance takes decodes.
        """

    def decode_candidates(self) -> Sequence[InstanceLoad]:
        """The accepting instances of role decode whose circuit is closed, in stable order of id; those of role both if
        the pool has no instance of role decode.
        """

    def load(self, instance: str) -> InstanceLoad | None: ...

    def has_drained(self, instance: str) -> bool:
        """Whether the instance was drained and no longer exists; used for the homes of sessions."""

    def hit_tokens(self, request: RoutingRequest, instance: str) -> int:
        """Leading prompt tokens the instance is believed to hold (< prompt_tokens: at least one
        token is always computed).
        """

    def hit_tokens_everywhere(self, request: RoutingRequest) -> Mapping[str, int]:
        """`hit_tokens` by instance, only for instances with a hit > 0."""

    def block_tokens(self, request: RoutingRequest) -> int:
        """Tokens per block by which the request's hits are counted: the engines' block size if KV events report the
        cached prefix, else the routing block.
        """

    def predicted_ttft_seconds(self, request: RoutingRequest, instance: str) -> float:
        """Predicted TTFT in seconds: the pending tokens there minus the elapsed part of the prefill in flight, plus
        this request's uncached tokens; by `prefill_speed`, or by the fit if the policy asks for it.
        """

    @property
    def prefill_speed(self) -> float:
        """Uncached prompt tokens per second and instance, for comparing choices: the measured speed, else the declared
        one.
        """

    def tokens_within(self, seconds: float) -> float:
        """Uncached prompt tokens that an instance computes in this time at its measured speed, used for refusals and
        moves; infinite while no speed is measured.
        """

    def decode_seconds(self, context_tokens: float, requests: float) -> float:
        """Return the predicted seconds of one decode step over this many tokens and requests (TPOT); 0 while decode
        times are unknown.
        """

    def pool_load(self) -> float:
        """How full the pool is: seconds of prefill that arrive per second and instance, plus the share of time that
        decodes need to meet the TPOT target. At 1 no time is left.
        """

    def step_seconds(self, load: InstanceLoad) -> float:
        """Predicted time of a decode step with all decodes on an instance, whichever router sent them."""

    def leanings(self, request: RoutingRequest, most_held: int) -> FloatVector | None:
        """Seconds to add to the cost of each of `candidates()`, so that routers that decide separately make choices
        that fit together; None to add nothing. `most_held` is the longest part of the prompt, in tokens, that an
        instance is known to hold.
        """

    def kept_tokens(self) -> FloatVector | None:
        """Return, for each of `candidates()`, the tokens of contexts in its cache, each multiplied by the likelihood of
        its session's next turn (`knowledge.kept_contexts`); None unless the policy's parameters ask for this.
        """

    def vectors(self) -> PoolVectors:
        """The counters of `candidates()`, one entry per candidate."""

    def hit_vector(self, request: RoutingRequest) -> IntVector:
        """`hit_tokens` on each of `candidates()`."""

    def ttft_vector(self, request: RoutingRequest, hits: IntVector) -> FloatVector:
        """Return the predicted TTFT in seconds on each of `candidates()`, if it held `hits` tokens of the prompt."""

    @property
    def is_tiered(self) -> bool:
        """Whether some of the hits in the last query may be outside GPUs."""

    def loading_vector(self, request: RoutingRequest) -> FloatVector | None:
        """Return the predicted seconds that each of `candidates()` needs to load those parts of the prompt that it
        holds outside its GPU, as far as the time is known; None if no candidate holds any. `ttft_vector` and
        `prefill_vector` include these seconds.
        """

    def tier_terms(self, request: RoutingRequest, instance: str) -> dict[str, float]:
        """Return, for the record of a decision, what an instance holds of the prompt outside its GPU and how long
        loading takes (`weighing.TIER_TERMS`); empty if the instance holds nothing outside its GPU.
        """

    def overtaken_seconds(self, request: RoutingRequest) -> FloatVector | None:
        """Return the part of `PoolVectors.wait_seconds` that would be sent after the request, because the request's
        class has a higher priority or its tenant has been served less; None if there is no such part.
        """

    def prefill_vector(self, request: RoutingRequest, hits: IntVector) -> FloatVector:
        """Predicted seconds of the prefill alone on each of `candidates()`, if it held `hits` tokens of the prompt."""

    def fetching(self, request: RoutingRequest) -> FetchSpeed | None:
        """Return how fast instances fetch KV blocks of the request's prompt from each other, measured, declared or
        assumed; None if they cannot.
        """

    def prefill_seconds(self, request: RoutingRequest, hit_tokens: int) -> float:
        """Predicted seconds of the prefill alone on an instance that held this many tokens of the prompt on its GPU."""

    def binding(self, session: str) -> Binding | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMove:
    """A queued request that moves between queues, with the cause and the TTFTs predicted for both instances."""

    request: str
    source: str
    target: str
    cause: MoveCause
    source_ttft_seconds: float
    target_ttft_seconds: float


class Policy(Protocol):
    """A routing policy. Deterministic given its seed, its history and the view.

    A policy that does more than choose also implements one or more of the protocols below; see `PolicyInForce`.
    """

    @property
    def name(self) -> str: ...

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        """Choose an instance among `view.candidates()`. Called only when there is a candidate."""


@runtime_checkable
class KeepsHomes(Protocol):
    """A policy that gives sessions a home: a session is bound to the instance where its request is placed. A session
    leaves a home that could take its request only for a stated cause, and only for at least the least gain in the
    policy's parameters.
    """

    @property
    def binds(self) -> bool:
        """Always True; marks such policies."""

    def cause_to_leave(self, request: RoutingRequest, home: Binding, weighed: Weighing, view: PoolView, now: float) -> MoveCause:
        """Return why the policy placed the request elsewhere although its session's `home` could take it.

        `weighed` has the compared values. Called only in that case, and only with the figures that decided.
        """


@runtime_checkable
class BindsBeginnings(Protocol):
    """A policy that also gives homes to requests without a session, by how their prompts begin."""

    def prefix_session(self, request: RoutingRequest) -> str:
        """Return the name under which the policy binds a request without a session."""


@runtime_checkable
class FollowsTable(Protocol):
    """A policy that keeps data derived from the table, such as a ring of its instances."""

    def table_changed(self, table: RoutingTable) -> None:
        """Take over the changed instances or parameters. Also called before the first choice."""


@runtime_checkable
class RestrictsPlacement(Protocol):
    """A policy whose requests may wait only at certain instances."""

    def placements(self, request: RoutingRequest) -> tuple[str, ...]:
        """Return the instances at which the request may wait under the current table; empty = any. Changes nothing."""


@runtime_checkable
class Rebalances(Protocol):
    """A policy that moves queued requests: from the instances that a decision names as overloaded, and several times a
    second from all instances that have a queue, unless the policy has `sweeps = False`.
    """

    def rebalance(
        self, overloaded: Sequence[str], queues: Mapping[str, Sequence[QueuedRequest]], view: PoolView, now: float
    ) -> Sequence[QueuedMove]:
        """Return the moves of queued requests to make now. A queue is sorted when it is first read."""


@runtime_checkable
class LearnsOnline(Protocol):
    """A policy that predicts with a model. The model is trained outside of the policy, on the results of its requests.
    The owner of the scheduler passes the samples to a learner and hands the learner's models to the policy when they
    are ready.
    """

    @property
    def learner_settings(self) -> LearnerSettings:
        """The settings for training its models."""

    def take_samples(self) -> Samples:
        """Observed results of requests since the last call, oldest first."""

    def adopt(self, model: Model) -> None:
        """Predict by `model` from the next choice on. If the model does not fit, raises ModelRefused and keeps the old
        model.
        """

    def learning(self) -> LearningReport:
        """The policy's training state, and how well it predicts."""


@runtime_checkable
class GatesDispatch(Protocol):
    """A policy that may hold back queued requests for an instance that has prefills in flight."""

    def may_dispatch(self, load: InstanceLoad, view: PoolView, now: float) -> bool:
        """Whether a further request may be sent to the instance. Not called for an instance without a prefill in
        flight.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInForce:
    """A policy with its optional protocols, each looked up once."""

    choose: Callable[[RoutingRequest, PoolView, float], Decision]
    keeps_homes: KeepsHomes | None
    binds_beginnings: BindsBeginnings | None
    follows_table: FollowsTable | None
    restricts_placement: RestrictsPlacement | None
    rebalances: Rebalances | None
    learns_online: LearnsOnline | None
    gates_dispatch: GatesDispatch | None
    sweeps: bool
    """Whether the policy's `rebalance` is called for all queues several times a second."""

    @staticmethod
    def of(policy: Policy) -> "PolicyInForce":
        """Find out which optional protocols the policy implements."""
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
