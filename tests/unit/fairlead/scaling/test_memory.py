"""What scaling remembers of its own steps."""

import pytest

from fairlead.instances import Role
from fairlead.scaling.memory import RatioMemory, RoleMemory, ScalingMemory, is_plausible, rebuilt, rewound, with_step


def stepped() -> RoleMemory:
    """Return the memory of two steps: 2 replicas became 4 at 100 s and 5 at 150 s."""
    role = RoleMemory(role=Role.BOTH, declared=2, replicas=2)
    return with_step(with_step(role, 4, 100.0, 60.0), 5, 150.0, 60.0)


def steps(role: RoleMemory) -> list[tuple[int, float]]:
    return [(step.change, step.at) for step in role.steps]


def test_steps_are_remembered_for_as_long_as_they_matter() -> None:
    assert steps(stepped()) == [(2, 100.0), (1, 150.0)]
    assert steps(with_step(stepped(), 3, 160.0, 60.0)) == [(1, 150.0), (-2, 160.0)]
    assert with_step(stepped(), 5, 999.0, 60.0) == stepped(), "that is not a step"


def test_what_seems_to_have_happened_in_the_future_happened_just_now() -> None:
    memory = ScalingMemory(roles=(stepped(),), ratio=RatioMemory(moved_at=130.0))
    back = rewound(memory, 120.0)
    assert steps(back.roles[0]) == [(2, 100.0), (1, 120.0)]
    assert back.ratio.moved_at == 120.0
    assert rewound(memory, 150.0) == memory


def roles(prefill: int, decode: int) -> dict[Role, int]:
    return {Role.PREFILL: prefill, Role.DECODE: decode}


@pytest.mark.parametrize(
    ("declared", "standing", "shift"),
    [
        (roles(3, 3), roles(3, 3), 0),
        (roles(3, 3), roles(4, 2), 1),
        (roles(3, 3), roles(2, 4), -1),
        (roles(3, 3), roles(4, 1), 1),
        (roles(3, 3), roles(3, 2), 0),
        (roles(3, 3), roles(2, 2), 0),
        (roles(3, 3), roles(5, 2), 1),
    ],
)
def test_what_moved_between_two_roles_is_seen_by_the_numbers_that_stand(
    declared: dict[Role, int], standing: dict[Role, int], shift: int
) -> None:
    found = rebuilt(ScalingMemory(), declared, standing, 100.0)
    assert (found.ratio.shift, found.ratio.moved_at) == (shift, 100.0 if shift else None)
    assert {role.role: (role.declared, role.replicas, role.rebuilt_at) for role in found.roles} == {
        role: (declared[role], standing[role], 100.0) for role in declared
    }


def test_what_is_remembered_counts_before_what_stands() -> None:
    known = ScalingMemory(roles=(RoleMemory(role=Role.BOTH, declared=1, replicas=4),))
    assert rebuilt(known, {Role.BOTH: 1}, {Role.BOTH: 9}, 100.0) == known
    assert rebuilt(ScalingMemory(), {Role.BOTH: 1}, {}, 100.0) == ScalingMemory()


@pytest.mark.parametrize(("replicas", "declared"), [(-1, 1), (1, -1), (10**9, 1), (1, 10**9)])
def test_a_number_that_cannot_have_been_decided_is_as_good_as_none(replicas: int, declared: int) -> None:
    assert not is_plausible(ScalingMemory(roles=(RoleMemory(role=Role.BOTH, declared=declared, replicas=replicas),)))
