"""Estimates the effect of changes of routing: another policy, other anchors or weights on the ring, paused migrations,
other latency targets and early rejection. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fairlead.errors import InvalidInput
from fairlead.instances import ACCEPTING, Role
from fairlead.pools import TableFacts
from fairlead.routing.contracts.catalogues import PolicyCatalogue, PolicyEntry, RingUse
from fairlead.routing.knowledge.ring_changes import expected_sessions, moved_shares
from fairlead.routing.knowledge.rings import key_shares
from fairlead.tables import MIGRATIONS_PAUSED, EarlyRejectionFacts, InstanceEntry, SloFacts
from fairlead_api.plans.evidence import PoolUse, Replay
from fairlead_api.plans.instance_effects import find
from fairlead_api.slo.budgets import what_if
from fairlead_client.resources.plans import PlanEffect


def policy_effect(pool: PoolUse, after: TableFacts, policies: PolicyCatalogue) -> PlanEffect:
    """The effect of another policy or other parameters; routers take it over with the next table, without a restart.

    Where the new policy places every request by the ring, or keeps no session at its home, bound sessions are taken to
    move: whether a session's key happens to lie at its home is not recorded.
    """
    before, bound = pool.facts.routing.policy, pool.sessions
    wanted = policies.entry(after.routing.policy)
    if before == wanted.name or not bound:
        return PlanEffect()
    if policies.keeps_homes(after.routing) and wanted.ring is not RingUse.EVERY_REQUEST:
        return PlanEffect(notes=[f"{bound} sessions keep their homes; {wanted.name} decides from their next request on."])
    how = "places every request by the ring" if wanted.ring is RingUse.EVERY_REQUEST else "keeps no session at its home"
    return PlanEffect(
        sessions_moved=bound,
        cache_tokens_lost=sum(use.cache_tokens for use in pool.instances),
        warnings=[f"{wanted.name} {how}: up to {bound} sessions move with their next request, and lose their cache where they were."],
        heavy=pool.is_heavy(bound),
    )


def ring_effect(pool: PoolUse, after: TableFacts, policies: PolicyCatalogue) -> PlanEffect:
    """The effect of other anchors: the keys that change owner, and the sessions that follow them."""
    new = [use.entry(after.anchors_per_instance) for use in pool.instances]
    return _rearranged(pool, new, policies.entry(after.routing.policy))


def weight_effect(pool: PoolUse, instance: str, before: float, after: float, policies: PolicyCatalogue, *, stays: bool) -> PlanEffect:
    """The effect of another weight of one instance on the ring; one that is still warming keeps its part of the whole.

    `stays`: the weight is written where it outlives the instance. Raises NotFound, and InvalidInput for an instance
    that never has keys.
    """
    one = find(pool, instance)
    if one.role is Role.DECODE:
        raise InvalidInput("instance", instance, "name an instance that computes prompts: a decode instance has no keys")
    anchors = pool.facts.anchors_per_instance
    new = [
        use.entry(anchors) if use is not one else replace(use, weight=use.weight * after / before).entry(anchors) for use in pool.instances
    ]
    notes = (
        [] if stays else ["The weight goes with the pod: one that takes its place has the weight of the pool's template, 1 without one."]
    )
    if one.state not in ACCEPTING:
        return PlanEffect(notes=[f"{instance} is {one.state} and has no keys now; the weight counts when it takes requests again.", *notes])
    shares = [key_shares(entries)[instance] for entries in ([use.entry(anchors) for use in pool.instances], new)]
    effect = _rearranged(pool, new, policies.entry(pool.facts.routing.policy))
    words = f"Share of keys of {instance}: {shares[0]:.1%} now, {shares[1]:.1%} with this plan."
    return replace(effect, notes=[words, *effect.notes, *notes])


def _rearranged(pool: PoolUse, new: Sequence[InstanceEntry], policy: PolicyEntry) -> PlanEffect:
    """The keys that change owner when the instances have these anchors, and the sessions that follow them."""
    old = [use.entry(pool.facts.anchors_per_instance) for use in pool.instances]
    moves = moved_shares(old, new)
    moved_share = sum(moves.values())
    if policy.ring is not RingUse.EVERY_REQUEST:
        words = "only to place new sessions" if policy.ring is RingUse.NEW_SESSIONS else "for nothing"
        return PlanEffect(key_share_moved=moved_share, notes=[f"{policy.name} uses the ring {words}: no bound session moves."])
    shares, bound = key_shares(old), {use.id: use.bound_sessions for use in pool.instances}
    cached = {use.id: use.cache_tokens for use in pool.instances}
    sessions = round(expected_sessions(moves, shares, bound))
    return PlanEffect(
        key_share_moved=moved_share,
        sessions_moved=sessions,
        cache_tokens_lost=round(expected_sessions(moves, shares, cached)),
        warnings=[f"About {sessions} of {pool.sessions} sessions move with their next request, and lose their cache."] if sessions else [],
        heavy=pool.is_heavy(sessions),
    )


def migrations_effect(pool: PoolUse, after: TableFacts, policies: PolicyCatalogue) -> PlanEffect:
    """What stays where it is from now on, or may move again. The change itself moves no session."""
    policy, bound = after.routing.policy, pool.sessions
    if after.routing.migrations != MIGRATIONS_PAUSED:
        return PlanEffect(notes=[f"{policy} moves sessions and queued requests again, by its own rules."])
    if not policies.keeps_homes(after.routing):
        return PlanEffect(notes=[f"{policy} keeps no session at a home, so none migrates anyway; queued requests wait where they are."])
    return PlanEffect(
        notes=[
            f"{bound} sessions stay where they are, and queued requests wait where they do; new sessions are placed by {policy}.",
            "What drains or is lost still gives its sessions up.",
        ],
        warnings=["Nothing relieves an instance that becomes hot, until migrations go on."],
    )


def slo_effect(pool: PoolUse, after: SloFacts, latencies: Mapping[str, Mapping[int, int]], refused: Replay | None) -> PlanEffect:
    """The attainment that the requests of the past day would have had; where requests are refused early, also their
    share. `latencies` are counts by cell, by priority class.
    """
    whole, classes = what_if(latencies, {}, after.ttft_seconds, after.tpot_seconds, after.percentile)
    least, most = whole.attainment_least, whole.attainment_most
    if least is None or most is None:
        return PlanEffect(warnings=_refusing(refused))
    warnings, notes = _refusing(refused), []
    if whole.met is False:
        warnings.insert(0, f"The goal of {after.percentile:g}% in time would have been missed: {most:.1%} were.")
    elif whole.met and pool.attainment is not None and pool.attainment < pool.facts.slo.percentile / 100:
        notes.append("The targets become easy enough to be met; requests are served no faster for it.")
    if most > least:
        notes.append(f"Latencies are recorded in steps, and a target lies within one: {least:.1%} to {most:.1%} would have been in time.")
    if len(classes) > 1:
        each = ", ".join(f"{one.priority_class} {one.attainment_least or 0:.1%} of {one.requests:,}" for one in classes)
        notes.append(f"By priority class: {each}.")
    return PlanEffect(
        predicted_attainment=least,
        predicted_refusals=refused.share if refused else None,
        prediction_basis=f"from {whole.requests:,} requests of the past day, served as they were",
        notes=notes,
        warnings=warnings,
    )


def rejection_effect(after: EarlyRejectionFacts, refused: Replay | None) -> PlanEffect:
    """The share of recorded decisions in which every candidate was predicted to be over the limit."""
    if after.mode == "Disabled":
        return PlanEffect(warnings=["Nothing is refused early: under overload requests wait until they time out."])
    notes = ["What decoding would add is not in the estimate; Predicted refuses at least as much as Load."]
    notes = notes if after.mode == "Predicted" else []
    if refused is None:
        return PlanEffect(notes=notes)
    return PlanEffect(
        predicted_refusals=refused.share,
        prediction_basis=f"from {refused.requests:,} sampled decisions of the last {_minutes(refused)}, by their predicted TTFT",
        notes=notes,
        warnings=_refusing(refused),
    )


def limit_seconds(facts: TableFacts) -> float | None:
    """The predicted TTFT above which a request is refused early; None if no request is."""
    return None if facts.early_rejection.mode == "Disabled" else facts.early_rejection.headroom * facts.slo.ttft_seconds


def _refusing(refused: Replay | None) -> list[str]:
    return [f"{refused.share:.1%} of requests like those would be refused."] if refused and refused.share >= 0.001 else []


def _minutes(replay: Replay) -> str:
    return f"{replay.seconds / 60:.0f} minutes"
