"""RingSynced, SLOMet, TaskSLOMet and ControlPlaneReachable: the conditions that follow from the control API's responses
about routers and requests.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from fairlead.conditions.facts import Condition, ConditionType, PoolFacts
from fairlead.pool_states import PoolObservations, TaskObservation
from fairlead.tables import meets

NOT_ANSWERED_YET = "NotAnsweredYet"


def _is_unanswered(facts: PoolFacts) -> bool:
    return facts.observations is None and facts.api_problem is None


def not_answered_yet(kind: ConditionType) -> Condition:
    """Return the condition of this type for the time before the first response of the control API. If the status
    already has the condition, it is kept.
    """
    return Condition(
        type=kind, status="Unknown", reason=NOT_ANSWERED_YET, message="The control API has been asked and has not answered yet"
    )


def ring_synced(facts: PoolFacts) -> Condition:
    kind = ConditionType.RING_SYNCED
    if not facts.desired:
        return Condition(type=kind, status="Unknown", reason="NoValidSpec", message="No valid spec was seen yet")
    if _is_unanswered(facts):
        return not_answered_yet(kind)
    if facts.observations is None:
        return Condition(
            type=kind, status="Unknown", reason="ControlPlaneUnreachable", message="Routers continue with the last table that they received"
        )
    version = facts.observations.table_version
    if facts.observations.live_routers == 0:
        return Condition(type=kind, status="True", reason="NoLiveRouter", message=f"Table version {version}; no router reported recently")
    if facts.observations.table_acknowledged:
        routers = facts.observations.live_routers
        who = "The live router routes" if routers == 1 else f"All of {routers} live routers route"
        message = f"{who} by table version {version}"
        return Condition(type=kind, status="True", reason="Acknowledged", message=message)
    return Condition(
        type=kind, status="False", reason="WaitingForRouters", message=f"Not every live router has table version {version} yet"
    )


def _from_last(facts: PoolFacts, kind: ConditionType, judge: Callable[[PoolFacts], Condition]) -> Condition:
    """Return the condition for the time in which the API does not respond. It is the condition from the last response,
    with the time of that response, if the response is recent and had figures; otherwise its status is Unknown.
    """
    unknown = Condition(type=kind, status="Unknown", reason="ControlPlaneUnreachable", message="Attainment is not known")
    if facts.last_heard is None:
        return unknown
    last = judge(replace(facts, observations=facts.last_heard.observations))
    at = datetime.fromtimestamp(facts.last_heard.at, UTC)
    message = f"At {at:%H:%M:%S} UTC: {last.message}; the control API has not answered since"
    return unknown if last.status == "Unknown" else replace(last, message=message)


def slo_met(facts: PoolFacts) -> Condition:
    """Return SLOMet: True if enough requests of the last five minutes met the targets."""
    kind = ConditionType.SLO_MET
    if facts.slo_percentile is None:
        return Condition(type=kind, status="Unknown", reason="NoValidSpec", message="No valid spec was seen yet")
    if _is_unanswered(facts):
        return not_answered_yet(kind)
    if facts.observations is None:
        return _from_last(facts, kind, slo_met)
    if facts.observations.figures_behind_seconds:
        message = f"Attainment is not known: the control API's roll-ups are {_length(facts.observations.figures_behind_seconds)} behind"
        return Condition(type=kind, status="Unknown", reason="FiguresBehind", message=message)
    judged = _attained(facts.observations)
    if judged is None:
        return Condition(type=kind, status="Unknown", reason="NoTraffic", message="No request finished in the last 5 minutes")
    attained, met_words, each = judged
    words = f"{_beside(attained * 100, facts.slo_percentile)}% of the requests {met_words}, wanted {facts.slo_percentile:g}%{each}"
    met = meets(attained, facts.slo_percentile)
    return Condition(type=kind, status="True" if met else "False", reason="TargetMet" if met else "TargetMissed", message=words)


def task_slo_met(facts: PoolFacts) -> Condition:
    """Return TaskSLOMet: True if each class of tasks that has a target met its target. Tasks that ended in the last
    hour are counted.
    """
    kind = ConditionType.TASK_SLO_MET
    if _is_unanswered(facts):
        return not_answered_yet(kind)
    if facts.observations is None:
        return _from_last(facts, kind, task_slo_met)
    goals = {one.name: one.percentile for one in facts.task_targets}
    seen = [one for one in facts.observations.tasks if one.name in goals and one.tasks + one.broken_off]
    if not any(one.tasks for one in seen):
        broken = sum(one.broken_off for one in seen)
        message = f"No task with a target ended in the last hour{f', and {broken} broke off' if broken else ''}"
        return Condition(type=kind, status="Unknown", reason="NoTasks", message=message)
    met = all(meets(one.in_time / one.tasks, goals[one.name]) for one in seen if one.tasks)
    words = "; ".join(_task_words(one, goals[one.name]) for one in seen)
    message = f"Tasks that were over in the last hour: {words}"
    return Condition(type=kind, status="True" if met else "False", reason="TargetMet" if met else "TargetMissed", message=message)


def _task_words(seen: TaskObservation, goal: float) -> str:
    broken = f", and {seen.broken_off} more broke off" if seen.broken_off else ""
    if not seen.tasks:
        return f"{seen.name}: none{broken}"
    return f"{seen.name}: {_beside(seen.in_time / seen.tasks * 100, goal)}% of {seen.tasks} were in time, wanted {goal:g}%{broken}"


def _beside(percent: float, goal: float = 100.0) -> str:
    """Return the percentage with at most three decimals. It has the fewest decimals that show whether the percentage
    reaches `goal` and whether it reaches 100: with a goal of 90, 89.6 is not shown as 90.
    """
    percent = round(percent, 9)
    words = [f"{percent:.{digits}f}" for digits in range(4)]
    return next((one for one in words if all((float(one) >= side) == (percent >= side) for side in (goal, 100.0))), words[-1])


def _length(seconds: float) -> str:
    """Write a duration in whole units, so that the message changes at most once a minute, not with every response."""
    return f"{seconds // 60:.0f} min" if seconds >= 60 else "over 30 s"


def _attained(seen: PoolObservations) -> tuple[float, str, str] | None:
    """Return the share of requests that met the SLO, the words for these requests and their targets, and words for the
    share that met each target alone; None without requests.

    While no request has finished, and with routers older than the operator, only TTFT is judged. The share for TTFT
    includes requests that still run, and the share for TPOT does not. So the two shares need not agree with the
    combined share, and the words say which requests each share counts.
    """
    if seen.slo_attainment is None:
        return None if seen.ttft_attainment is None else (seen.ttft_attainment, "of the last 5 minutes met the TTFT target", "")
    firsts = "first tokens (also of requests that still run) met TTFT"
    parts = ((seen.ttft_attainment, firsts), (seen.tpot_attainment, "answers met TPOT"))
    each = ", ".join(f"{_beside(share * 100)}% of all {words}" for share, words in parts if share is not None)
    return seen.slo_attainment, "that ended in the last 5 minutes met the targets of TTFT and TPOT", each and f"; in these minutes, {each}"


def control_plane_reachable(facts: PoolFacts) -> Condition:
    kind = ConditionType.CONTROL_PLANE_REACHABLE
    if _is_unanswered(facts):
        return not_answered_yet(kind)
    if facts.observations is None:
        meanwhile = "serving instances keep serving and are not drained; drains in progress end at drain.timeout; new instances wait"
        message = f"{facts.api_problem}; {meanwhile}"
        return Condition(type=kind, status="False", reason="NoAnswer", message=message)
    if facts.observations.record_lacks:
        return Condition(type=kind, status="True", reason="DatabaseWentBack", message=facts.observations.record_lacks)
    return Condition(type=kind, status="True", reason="Answered", message="The control API accepted the pool's state")
