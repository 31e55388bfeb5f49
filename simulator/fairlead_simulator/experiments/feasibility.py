"""Checks before a simulation whether it is possible. The errors name the command line's options."""

from collections.abc import Sequence
from math import inf
from pathlib import Path

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead_process.policies import installed_policies
from fairlead_simulator.errors import OutputUnwritable
from fairlead_simulator.experiments.choices import PolicyChoice, parameter_path
from fairlead_simulator.simulation.events import EventQueue
from fairlead_simulator.simulation.pool_changes import PlannedChange, PoolChanges
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.timeline import Override, ScaleTo, TimelineEvent

LONGEST_SECONDS = 30 * 86_400
"""Maximum simulated time of a run, in seconds. Even idle time takes some time to simulate."""


def check_duration(requests: int, rates: Sequence[float], warmup: int, warmup_rate: float | None) -> None:
    """Raise InvalidInput if requests arrive so rarely that a run would simulate more than LONGEST_SECONDS."""
    if warmup_rate is not None:
        _check_duration("--warmup-rate", warmup, warmup_rate)
    for rate in rates:
        _check_duration("--rates", requests if warmup_rate is None else requests - warmup, rate)


def _check_duration(option: str, requests: int, rate: float) -> None:
    if requests > rate * LONGEST_SECONDS:
        days, least = LONGEST_SECONDS // 86_400, requests / LONGEST_SECONDS * 1.01
        raise InvalidInput(
            option, f"{rate:g}", f"{requests:,} requests would take more than {days} days; write at least {least:.2g} a second"
        )


def check_policies(policies: Sequence[PolicyChoice], spec: SimulatedPool, timeline: Sequence[TimelineEvent]) -> None:
    """Raise InvalidInput if a policy needs roles that the pool lacks, or if the timeline sets a parameter that the
    policy in use at that time does not have.
    """
    roles = {Role.BOTH} if spec.instances else {Role.PREFILL, Role.DECODE}
    for choice in policies:
        _check_roles("--policies", choice.name, roles)
        _check_overrides(choice.name, set(roles), timeline)


def _check_overrides(policy: str, roles: set[Role], timeline: Sequence[TimelineEvent]) -> None:
    for event in sorted(timeline, key=lambda one: one.at):
        if isinstance(event, ScaleTo):
            roles.add(event.role)
        elif isinstance(event, Override) and (event.policy is not None or event.parameters):
            policy = event.policy or policy
            place = f"--timeline: override at {event.at:g} s"
            _check_roles(f"{place}: policy", policy, roles)
            try:
                installed_policies().check_parameters(policy, event.parameters)
            except InvalidInput as error:
                raise InvalidInput(f"{place}: parameters.{parameter_path(error)}", error.value, error.remedy) from None


def _check_roles(field: str, policy: str, roles: set[Role]) -> None:
    missing = [role.value for role in installed_policies().entry(policy).needs_roles if role not in roles]
    if missing:
        remedy = f"it needs instances of role {' and '.join(missing)}; give --prefill-instances and --decode-instances"
        raise InvalidInput(field, policy, remedy)


def check_failures(spec: SimulatedPool, timeline: Sequence[TimelineEvent]) -> None:
    """Raise InvalidInput if the timeline has an event in which an instance fails, and this instance does not accept
    requests at the time of the event.
    """
    changes, table, events = PoolChanges(spec, timeline), spec.first_table(), EventQueue()

    def apply(event: PlannedChange, now: float) -> None:
        nonlocal table
        change = changes.apply(event, table, now)
        table = change.table or table
        for later in change.later:
            events.at(later.at, apply, later)

    for event in changes.planned():
        events.at(event.at, apply, event)
    while events.next_at() < inf:
        events.let_happen()


def check_outputs(json_path: Path | None, plots: Path | None) -> None:
    """Raise OutputUnwritable if the simulation's results could not be written later. Creates the folder for plots."""
    if json_path is not None:
        if json_path.is_dir():
            raise OutputUnwritable(json_path, "Is a directory", "name a file")
        if not json_path.parent.is_dir():
            raise OutputUnwritable(json_path, "No such directory", f"make {json_path.parent} first")
    if plots is not None:
        try:
            plots.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputUnwritable(plots, error.strerror or type(error).__name__, "name a folder that can be created") from None
