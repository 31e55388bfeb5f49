"""What scaling remembers of its own steps."""

from fairlead.instances import Role
from fairlead.scaling.memory import RatioMemory, RoleMemory, ScalingMemory, rewound, with_step


def stepped() -> RoleMemory:
    """2 replicas became 4 at 100 s and 5 at 150 s."""
    role = RoleMemory(role=Role.BOTH, declared=2, replicas=2)
    return with_step(with_step(role, 4, 100.0, 60.0), 5, 150.0, 60.0)


def steps(role: RoleMemory) -> list[tuple[int, float]]:
    return [(step.change, step.at) for step in role.steps]


def test_steps_are_remembered_for_as_long_as_they_matter() -> None:
    assert steps(stepped()) == [(2, 100.0), (1, 150.0)]
    assert steps(with_step(stepped(), 3, 160.0, 60.0)) == [(1, 150.0), (-2, 160.0)]
    assert with_step(stepped(), 5, 999.0, 60.0) == stepped(), "that is no step"


def test_what_seems_to_have_happened_in_the_future_happened_just_now() -> None:
    memory = ScalingMemory(roles=(stepped(),), ratio=RatioMemory(moved_at=130.0))
    back = rewound(memory, 120.0)
    assert steps(back.roles[0]) == [(2, 100.0), (1, 120.0)]
    assert back.ratio.moved_at == 120.0
    assert rewound(memory, 150.0) == memory
