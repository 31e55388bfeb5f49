"""The load of each instance as advice sees it: its predicted latency over the target. Pure."""

from collections.abc import Mapping

from fairlead.instances import Role
from fairlead.pools import TableFacts
from fairlead.scaling.signals import PoolSignals
from fairlead_api.scaling.signals import InstanceMeasures, PoolMeasures


def loads(measured: PoolMeasures, roles: Mapping[str, Role], signals: PoolSignals, facts: TableFacts) -> dict[str, float]:
    """By instance: the larger of what it prefills over TTFT and what it decodes over TPOT; of a side that it computes
    and whose speed was measured.

    As `RoleSignals.prefill_load` and `decode_load`, which are the means of these.
    """
    found: dict[str, float] = {}
    for one in measured.instances:
        role = roles.get(one.instance)
        of_role = None if role is None else signals.of(role)
        if role is None or of_role is None:
            continue
        sides = []
        if role is not Role.DECODE and of_role.prefill_tokens_per_second:
            sides.append(one.pending_mean / of_role.prefill_tokens_per_second / facts.slo.ttft_seconds)
        if role is not Role.PREFILL:
            step = of_role.decode_step
            seconds = _measured(one) if step is None else step.fixed_seconds + step.seconds_per_request * one.running_mean
            sides.append(seconds / facts.slo.tpot_seconds)
        if sides:
            found[one.instance] = max(sides)
    return found


def _measured(one: InstanceMeasures) -> float:
    return one.tpot_mean or 0.0
