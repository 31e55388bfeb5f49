"""A pool that was created again with other roles: its former instances leave as instances of the new roles serve."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState, Role
from fairlead.reconciling.actions import CreateInstance, DeleteInstance, Drain, RecordState
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import DesiredPool, ObservedInstance, PodHealth, RolloutBounds
from fairlead.reconciling.rollouts import room
from fairlead_testing.examples import examples
from fairlead_testing.worlds.pool_worlds import answer, instance, seen, wanted_pair, wanted_pool

S = InstanceState
LONGEST_ROUNDS = 200


def stepped(desired: DesiredPool, pods: dict[str, ObservedInstance], now: float) -> bool:
    """Run a round and return whether it had actions. New pods are ready in the next one."""
    observed = tuple(pods.values())
    actions = next_actions(desired, observed, answer(*(seen(name) for name in pods)), now, last_ordinal=1000)
    for action in actions:
        match action:
            case CreateInstance():
                name = f"n{len(pods)}-{now:.0f}-{action.ordinal}"
                pods[name] = instance(name, S.PENDING, role=action.role, since=now, created_at=now, spec_hash=action.spec_hash)
            case DeleteInstance():
                del pods[action.instance]
            case Drain():
                pods[action.instance] = replace(pods[action.instance], state=S.DRAINING, draining_since=now)
            case RecordState():
                pods[action.instance] = replace(pods[action.instance], state=action.state, state_since=now)
            case _:
                raise AssertionError(action)
    for name, pod in pods.items():
        pods[name] = replace(pod, health=PodHealth.READY)
    return bool(actions)


def serving(pods: dict[str, ObservedInstance]) -> dict[Role, int]:
    return {role: sum(pod.role is role and pod.state is S.SERVING for pod in pods.values()) for role in Role}


@examples(200)
@given(
    before=st.one_of(st.tuples(st.integers(1, 6), st.just(0), st.just(0)), st.tuples(st.just(0), st.integers(1, 3), st.integers(1, 3))),
    after=st.one_of(st.tuples(st.integers(1, 6), st.just(0), st.just(0)), st.tuples(st.just(0), st.integers(1, 3), st.integers(1, 3))),
    surge=st.integers(0, 2),
    unavailable=st.integers(0, 2),
)
def test_never_fewer_serve_than_in_a_rollout_and_the_new_roles_are_reached(
    before: tuple[int, int, int], after: tuple[int, int, int], surge: int, unavailable: int
) -> None:
    bounds = RolloutBounds(max_surge=surge, max_unavailable=unavailable)
    both, prefill, decode = after
    desired = wanted_pool(both, minimum=1, rollout=bounds) if both else wanted_pair(prefill, decode)
    if not both:
        desired = replace(desired, roles=tuple(replace(role, rollout=bounds) for role in desired.roles))
    pods = {
        f"{role.value}{number}": instance(f"{role.value}{number}", role=role)
        for role, count in zip((Role.BOTH, Role.PREFILL, Role.DECODE), before, strict=True)
        for number in range(count)
    }
    wanted = sum(role.replicas for role in desired.roles)
    least = min(sum(before), wanted - sum(room(role).unavailable for role in desired.roles))
    each = sum(count > 0 for count in (*before, *after))  # one instance of each role may always exist
    most = max(sum(before), each, wanted + sum(room(role).surge for role in desired.roles))
    of_one_kind = bool(before[0]) == bool(after[0])
    for number in range(LONGEST_ROUNDS):
        if not stepped(desired, pods, 1000.0 + 10 * number):
            break
        found = serving(pods)
        if of_one_kind:
            continue  # the roles are the same: an ordinary change of their numbers
        assert sum(found.values()) >= least
        assert len(pods) <= most
        assert found[Role.BOTH] or (found[Role.PREFILL] and found[Role.DECODE]), "some prompt can be answered at any time"
    assert serving(pods) == dict(zip((Role.BOTH, Role.PREFILL, Role.DECODE), after, strict=True))
    assert len(pods) == wanted
