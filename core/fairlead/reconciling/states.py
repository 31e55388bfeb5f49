"""Computes an instance's state from the state recorded last and from its pod's present status."""

from fairlead.instances import ACCEPTING, ENGINE_RESTARTED, InstanceState
from fairlead.reconciling.observed import EngineSleep, ObservedInstance, PodHealth

BACK_WHILE_DRAINING = "BackWhileDraining"
"""The reason of a state: the instance was lost while it drained, has returned, and drains again."""
WOKEN_BY_OTHERS, SLEPT_BY_OTHERS = "WokenByOthers", "PutToSleepByOthers"
"""Reasons of states: the engine was woken, or put to sleep, not by the operator but by somebody else or by a restart.
"""
_IDLE = frozenset({InstanceState.CORDONED, InstanceState.ASLEEP})
_ON_THE_WAY = frozenset({InstanceState.PENDING, InstanceState.STARTING, InstanceState.LOST})
_NOT_YET = frozenset({EngineSleep.ASLEEP, EngineSleep.SILENT})
_AWAKE = frozenset({EngineSleep.AWAKE, EngineSleep.UNABLE})


def next_state(instance: ObservedInstance, *, in_every_table: bool, warm: bool = True) -> tuple[InstanceState, str]:
    """Return the instance's next state, and the reason.

    `in_every_table` = every live router routes by a table that contains the state last reported; `warm` = the instance
    has its full weight in these tables. The result is either the recorded state, if nothing changed, or a state to
    which a single legal transition leads.
    """
    recorded = instance.state
    # A pod that was deleted ends, and its last phase says so before it goes: that is no loss.
    ends = instance.health is PodHealth.FAILED and not instance.terminating
    if (ends or instance.health is PodHealth.UNREACHABLE) and recorded is not InstanceState.LOST:
        return InstanceState.LOST, instance.loss_reason
    if recorded is InstanceState.DRAINING:
        return recorded, "Draining"
    if instance.terminating:
        reason = instance.health_reason or "PodDeleted"
        return (InstanceState.DRAINING, reason) if recorded is not InstanceState.LOST else (recorded, reason)
    if instance.health is PodHealth.READY:
        return _of_ready(instance, serves=in_every_table and warm)
    if recorded in ACCEPTING or recorded in _IDLE or instance.waking:
        return InstanceState.LOST, instance.loss_reason
    if recorded is InstanceState.PENDING and instance.health is PodHealth.RUNNING:
        return InstanceState.STARTING, "ContainersRunning"
    return recorded, "Unchanged"


def _of_ready(instance: ObservedInstance, *, serves: bool) -> tuple[InstanceState, str]:
    recorded, sleep = instance.state, instance.sleep
    if instance.draining_since is not None:
        return InstanceState.DRAINING, BACK_WHILE_DRAINING  # its drain began before it was lost, and goes on
    if instance.waking:
        return (recorded, "Unchanged") if sleep in _NOT_YET else (InstanceState.WARMING, "Woken")
    if sleep is EngineSleep.ASLEEP:
        return InstanceState.ASLEEP, SLEPT_BY_OTHERS if recorded is not InstanceState.ASLEEP else "Unchanged"
    if recorded is InstanceState.ASLEEP:
        return (InstanceState.WARMING, WOKEN_BY_OTHERS) if sleep in _AWAKE else (recorded, "Unchanged")
    if instance.cordoned:
        return InstanceState.CORDONED, "Cordoned" if recorded is not InstanceState.CORDONED else "Unchanged"
    if recorded is InstanceState.CORDONED:
        return InstanceState.SERVING, "Uncordoned"
    if recorded in _ON_THE_WAY:
        served = ENGINE_RESTARTED if instance.warmed_restarts is not None else "EngineReady"
        return InstanceState.WARMING, "ReadyAgain" if instance.is_warm else served
    if recorded is InstanceState.WARMING and serves:
        return InstanceState.SERVING, "TableAcknowledged"
    return recorded, "Unchanged"
