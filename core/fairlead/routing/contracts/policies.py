"""The interface of routing policies: the data that a policy may read, and the methods that it implements.

A policy is chosen by name, built from a routing table, and called to choose an instance. It sees a `PoolView` (the
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
    """The speed at which instances fetch KV blocks from each other. `size` is the size of one token's blocks, and
    `rate` the amount transferred per second, both in bytes. If the size is unknown, both count tokens. The latency is
    the time until the first block arrives, in seconds.
    """

    size: float
    rate: float
    latency_seconds: float


def modelled_fetching(modelled: ModelledFacts) -> FetchSpeed | None:
    """Return the fetch speed of simulated engines, which fetch blocks without a request to do so; None if the engines
    do not fetch.
    """
    if modelled.kv_transfer_bytes_per_second <= 0:
        return None
    latency = modelled.kv_transfer_latency_seconds
    return FetchSpeed(size=modelled.kv_bytes_per_token, rate=modelled.kv_transfer_bytes_per_second, latency_seconds=latency)


class PoolView(Protocol):
    """The state that a policy may read."""

    @property
    def table(self) -> RoutingTable: ...

    def candidates(self) -> Sequence[InstanceLoad]:
        """The accepting instances with role both or prefill and a closed circuit, in order of id.

        Prefill instances are candidates only while some instance takes decodes.
        """

    def decode_candidates(self) -> Sequence[InstanceLoad]:
        """The accepting instances with role decode and a closed circuit, in order of id. If the pool has no instance
        with role decode, the instances with role both.
        """

    def load(self, instance: str) -> InstanceLoad | None: ...

    def has_drained(self, instance: str) -> bool:
        """Return whether the instance was drained and no longer exists. The result shows why a session cannot stay
        there.
        """

    def hit_tokens(self, request: RoutingRequest, instance: str) -> int:
        """Return the number of leading prompt tokens that the instance is believed to hold. The number is less than
        `prompt_tokens`, because at least one token is always computed.
        """

    def hit_tokens_everywhere(self, request: RoutingRequest) -> Mapping[str, int]:
        """Return the `hit_tokens` of each instance that has any."""

    def block_tokens(self, request: RoutingRequest) -> int:
        """Return the tokens per block in which the request's hits are counted: the engines' block size if KV events
        report the cached prefix, else the size of a routing block.
        """

    def predicted_ttft_seconds(self, request: RoutingRequest, instance: str) -> float:
        """Return the predicted TTFT in seconds: the time to compute the instance's pending tokens and then this
        request's uncached tokens. The elapsed part of the prefill in flight is subtracted. The prediction uses
        `prefill_speed` or, if the policy requires a fit, the fit.
        """

    @property
    def prefill_speed(self) -> float:
        """Uncached prompt tokens that an instance prefills per second, for comparing choices: the measured speed or,
        without one, the declared speed.
        """

    def tokens_within(self, seconds: float) -> float:
        """Return the uncached prompt tokens that an instance computes in this time at its measured speed; infinite
        while no speed has been measured. Refusals and moves are based on it.
        """

    def decode_seconds(self, context_tokens: float, requests: float) -> float:
        """Return the predicted seconds of one decode step over this many tokens and requests (TPOT); 0 while decode
        times are unknown.
        """

    def pool_load(self) -> float:
        """Return the load of the pool: the seconds of prefill that arrive per second and instance, plus the share of
        time that decodes need to meet the TPOT target. At 1 the pool is full.
        """

    def step_seconds(self, load: InstanceLoad) -> float:
        """Return the predicted seconds of a decode step of an instance with all its decodes, whichever router sent
        them.
        """

    def leanings(self, request: RoutingRequest, most_held: int) -> FloatVector | None:
        """Return seconds to add to the cost of each of `candidates()`. They keep routers that decide separately from
        choosing the same instances. None to add nothing. `most_held` is the largest number of the prompt's tokens that
        an instance is known to hold.
        """

    def kept_tokens(self) -> FloatVector | None:
        """Return, for each of `candidates()`, the sum of its cached contexts in tokens. Each context is multiplied by
        the likelihood that its session continues (`knowledge.kept_contexts`). None unless the policy's parameters ask
        for this sum.
        """

    def vectors(self) -> PoolVectors:
        """Return the counters of `candidates()` as vectors with one entry per candidate."""

    def hit_vector(self, request: RoutingRequest) -> IntVector:
        """Return `hit_tokens` for each of `candidates()`."""

    def ttft_vector(self, request: RoutingRequest, hits: IntVector) -> FloatVector:
        """Return the predicted TTFT in seconds on each of `candidates()`, if the candidate holds as many tokens of the
        prompt as its entry of `hits`.
        """

    @property
    def is_tiered(self) -> bool:
        """Return whether some of the hits in the last query may be in a cache tier outside the GPU."""

    def loading_vector(self, request: RoutingRequest) -> FloatVector | None:
        """Return the predicted seconds that each of `candidates()` needs to load the parts of the prompt that it holds
        outside its GPU, as far as the time is known. None if no candidate holds a part outside its GPU. `ttft_vector`
        and `prefill_vector` include these seconds.
        """

    def tier_terms(self, request: RoutingRequest, instance: str) -> dict[str, float]:
        """Return terms for the record of a decision: the part of the prompt that an instance holds outside its GPU, and
        the time to load this part (`weighing.TIER_TERMS`). Empty if it holds nothing outside its GPU.
        """

    def overtaken_seconds(self, request: RoutingRequest) -> FloatVector | None:
        """Return, for each of `candidates()`, the part of `PoolVectors.wait_seconds` that belongs to prefills sent
        after the request, because the request's class has a higher priority or its tenant has been served less. None if
        no waiting work would be sent after the request.
        """

    def prefill_vector(self, request: RoutingRequest, hits: IntVector) -> FloatVector:
        """Return the predicted seconds of the prefill alone on each of `candidates()`, if the candidate holds as many
        tokens of the prompt as its entry of `hits`.
        """

    def fetching(self, request: RoutingRequest) -> FetchSpeed | None:
        """Return the speed at which instances fetch KV blocks of the request's prompt from each other (measured,
        declared or assumed); None if they cannot fetch.
        """

    def prefill_seconds(self, request: RoutingRequest, hit_tokens: int) -> float:
        """Return the predicted seconds of the prefill alone on an instance that holds `hit_tokens` of the prompt on its
        GPU.
        """

    def binding(self, session: str) -> Binding | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMove:
    """A move of a queued request to another instance's queue, with its cause and the TTFTs predicted on both
    instances.
    """

    request: str
    source: str
    target: str
    cause: MoveCause
    source_ttft_seconds: float
    target_ttft_seconds: float


class Policy(Protocol):
    """A routing policy: deterministic given its seed, the sequence of its calls, and the view.

    A policy that does more than choosing also implements one or more of the other protocols in this module; see
    `PolicyInForce`.
    """

    @property
    def name(self) -> str: ...

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        """Choose an instance among `view.candidates()`. Called only when there is at least one candidate."""


@runtime_checkable
class KeepsHomes(Protocol):
    """A policy that gives each session a home: the session is bound to the instance where its request is placed. A
    session may leave a home that could take its request only for a recorded cause, and only if the TTFT gain is at
    least `least_gain` of the policy's parameters.
    """

    @property
    def binds(self) -> bool:
        """Return True; the method marks policies that bind sessions."""

    def cause_to_leave(self, request: RoutingRequest, home: Binding, weighed: Weighing, view: PoolView, now: float) -> MoveCause:
        """Return the cause for which the policy placed the request on another instance although its session's `home`
        could take the request.

        `weighed` holds the values that the policy compared for this decision. The method is not called if `home` could
        not take the request.
        """


@runtime_checkable
class BindsBeginnings(Protocol):
    """A policy that also binds requests without a session to instances, using the beginnings of their prompts."""

    def prefix_session(self, request: RoutingRequest) -> str:
        """Return the session name under which the policy binds a request that has no session."""


@runtime_checkable
class FollowsTable(Protocol):
    """A policy that keeps data derived from the routing table, such as a hash ring of its instances."""

    def table_changed(self, table: RoutingTable) -> None:
        """Use the instances and parameters of the new table. Also called before the first choice."""


@runtime_checkable
class RestrictsPlacement(Protocol):
    """A policy that allows each request to be queued only at certain instances."""

    def placements(self, request: RoutingRequest) -> tuple[str, ...]:
        """Return the instances at which the request may be queued under the current table; empty = all. The call
        changes nothing.
        """


@runtime_checkable
class Rebalances(Protocol):
    """A policy that moves queued requests between instances. It is called for the instances that a decision names as
    overloaded and, unless the policy has `sweeps = False`, several times a second for all instances that have a queue.
    """

    def rebalance(
        self, overloaded: Sequence[str], queues: Mapping[str, Sequence[QueuedRequest]], view: PoolView, now: float
    ) -> Sequence[QueuedMove]:
        """Return the moves of queued requests to make now. Each queue in `queues` is sorted when it is first read."""


@runtime_checkable
class LearnsOnline(Protocol):
    """A policy that predicts with a model, which is trained outside the policy on observed results of its requests. The
    owner of the scheduler passes the samples to a learner, and passes the learner's models to the policy.
    """

    @property
    def learner_settings(self) -> LearnerSettings:
        """Return the settings for training the policy's models."""

    def take_samples(self) -> Samples:
        """Return the observed results that were recorded after the last call, oldest first."""

    def adopt(self, model: Model) -> None:
        """Predict with `model` from the next choice on. If the model's features do not fit the policy, raises
        ModelRefused and keeps the old model.
        """

    def learning(self) -> LearningReport:
        """Return the state of the policy's training, and the errors of its predictions."""


@runtime_checkable
class GatesDispatch(Protocol):
    """A policy that may delay queued requests for an instance that has prefills in flight."""

    def may_dispatch(self, load: InstanceLoad, view: PoolView, now: float) -> bool:
        """Return whether a further request may be sent to the instance now. Not called for an instance without a
        prefill in flight.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInForce:
    """A policy together with the optional protocols that it implements. The protocols are determined once, when the
    object is made.
    """

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
        """Return the policy with the optional protocols that it implements."""
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
