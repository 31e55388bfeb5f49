"""What one round of a pool read, was answered, and decided."""

from dataclasses import dataclass

from fairlead.pool_states import PoolState
from fairlead.pools import PoolSpec
from fairlead.reconciling.actions import Action
from fairlead.reconciling.observed import DesiredRole
from fairlead_operator.reconciling.pool_reader import PoolReading
from fairlead_operator.reconciling.roles import ScaleStep
from fairlead_operator.reconciling.rollouts import RolloutRound
from fairlead_operator.reconciling.scaling import Scaled
from fairlead_operator.reconciling.state_exchange import Answer
from fairlead_operator.reconciling.windows import Scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRound:
    """Everything decided in one round, at `now` (Unix seconds); nothing of it is done yet.

    `state` was sent to the control API and `answer` is its answer. `steps` are the changes of numbers wanted since the
    last round; `former` is the spec that a halted rollout keeps instances of; `highest_ordinal` was given before.
    """

    now: float
    reading: PoolReading
    schedules: Scheduled | None
    state: PoolState
    answer: Answer
    scaling: Scaled
    desired: tuple[DesiredRole, ...]
    steps: tuple[ScaleStep, ...]
    rollout: RolloutRound
    former: PoolSpec | None
    actions: tuple[Action, ...]
    highest_ordinal: int
