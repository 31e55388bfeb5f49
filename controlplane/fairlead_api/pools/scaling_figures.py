"""The figures by which a pool's instances can be scaled from outside Fairlead: by KEDA, by a HorizontalPodAutoscaler,
or by people who get an alert.

The pool's page shows the same figures: the number of instances that the operator wants, or would want in mode Advise,
and the share of requests within the objectives.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFigures:
    """The scaling figures of all pools.

    `wanted` is the number of wanted instances by pool (`namespace/name`) and role. `headroom` is, by pool, a difference
    of two shares (0-1): the share of requests that met the TTFT and TPOT targets, among the requests judged in the last
    5 minutes, minus the share that the objective demands. It is negative while the objective is missed. A pool without
    judged requests is left out.
    """

    wanted: dict[tuple[str, str], int]
    headroom: dict[str, float]
    task_headroom: dict[tuple[str, str], float] = field(default_factory=dict)
    """By pool and priority class: of the tasks that ended in the last hour, the share (0-1) that met the class's target
    for whole tasks, minus the share that the target demands. Classes without such a target are left out.
    """
