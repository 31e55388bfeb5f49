"""The figures by which others can scale a pool's instances: KEDA, a HorizontalPodAutoscaler, or an alert.

They are those of the pool's page: the number that the operator wants, or would want in mode Advise, and the share of
requests within the objective.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFigures:
    """`wanted` is the number of instances, by pool (`namespace/name`) and role. `headroom`, by pool, is the share of
    judged requests of the last 5 minutes within TTFT and TPOT (0-1) minus the share that is the goal, so negative while
    the objective is missed; without a pool of which nothing was judged.
    """

    wanted: dict[tuple[str, str], int]
    headroom: dict[str, float]
    task_headroom: dict[tuple[str, str], float] = field(default_factory=dict)
    """The same of whole tasks that were over in the last hour, by pool and priority class with a target."""
