"""The values that open windows set together: bounds per role, SLO, early rejection and ratio.

Several open windows may have the same subject (one role, the SLO, early rejection, the ratio). The window that opened
last then decides alone. If windows opened at the same instant, a role gets the larger bounds; for any other subject the
schedule whose name comes first decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fairlead.instances import Role
from fairlead.scaling.bounds import RoleBounds
from fairlead.scaling.specs import RatioSpec
from fairlead.schedules.specs import EarlyRejectionOverride, RatioOverride, ScheduledRole, ScheduleSpec, SloOverride, overridden
from fairlead.schedules.windows import Window, open_windows
from fairlead.tables import EarlyRejectionFacts, SloFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """The effect of all open windows; `windows` are in the order of `open_windows`.

    `deciding` names, for each subject (a role's name, `slo`, `earlyRejection`, `ratio`), the schedules that decide it.
    """

    windows: tuple[Window, ...]
    bounds: tuple[RoleBounds, ...]
    slo_override: SloOverride | None
    early_rejection_override: EarlyRejectionOverride | None
    ratio_override: RatioOverride | None
    deciding: Mapping[str, tuple[str, ...]]

    def is_open(self, schedule: str) -> bool:
        """Return whether the schedule of this name has a window open."""
        return any(window.schedule == schedule for window in self.windows)

    def slo(self, pool: SloFacts) -> SloFacts:
        """Return the pool's latency targets, with overrides applied."""
        return pool if self.slo_override is None else SloFacts(**overridden(pool, self.slo_override))

    def early_rejection(self, pool: EarlyRejectionFacts) -> EarlyRejectionFacts:
        """Return the pool's early rejection, with overrides applied."""
        return pool if self.early_rejection_override is None else EarlyRejectionFacts(**overridden(pool, self.early_rejection_override))

    def ratio(self, pool: RatioSpec) -> RatioSpec:
        """Return the pool's ratio section, with overrides applied."""
        return pool if self.ratio_override is None else RatioSpec(**overridden(pool, self.ratio_override))

    def overruling(self, schedule: ScheduleSpec) -> tuple[str, ...]:
        """Return the schedules that together override all subjects of this schedule; empty if it still decides one of
        its subjects.
        """
        deciding = [self.deciding.get(subject, ()) for subject in subjects(schedule)]
        if any(schedule.name in names for names in deciding):
            return ()
        return tuple(sorted({name for names in deciding for name in names}))


def subjects(schedule: ScheduleSpec) -> tuple[str, ...]:
    """Return the subjects that a schedule sets: roles by name, `slo`, `earlyRejection`, `ratio`."""
    sections = {"slo": schedule.slo, "earlyRejection": schedule.early_rejection, "ratio": schedule.ratio}
    return (*(role.name.value for role in schedule.roles), *(name for name, given in sections.items() if given is not None))


def in_force(schedules: Sequence[ScheduleSpec], instant: datetime) -> InForce:
    """Return the values in force at an instant."""
    by_name = {schedule.name: schedule for schedule in schedules}
    windows = open_windows(schedules, instant)
    deciding: dict[str, list[Window]] = {}
    for window in windows:
        for subject in subjects(by_name[window.schedule]):
            found = deciding.setdefault(subject, [])
            if not found or found[0].opens == window.opens:
                found.append(window)
    names = {subject: tuple(window.schedule for window in found) for subject, found in deciding.items()}
    roles = {role: names[role.value] for role in Role if role.value in names}
    first = {subject: by_name[found[0]] for subject, found in names.items()}
    slo, early_rejection, ratio = first.get("slo"), first.get("earlyRejection"), first.get("ratio")
    return InForce(
        windows=windows,
        bounds=tuple(_larger(role, [by_name[name] for name in found]) for role, found in roles.items()),
        slo_override=slo.slo if slo else None,
        early_rejection_override=early_rejection.early_rejection if early_rejection else None,
        ratio_override=ratio.ratio if ratio else None,
        deciding={subject: found if subject in set(Role) else found[:1] for subject, found in names.items()},
    )


def _larger(role: Role, schedules: Sequence[ScheduleSpec]) -> RoleBounds:
    bounds: list[ScheduledRole] = [item for schedule in schedules for item in schedule.roles if item.name is role]
    least = [item.least for item in bounds if item.least is not None]
    most = [item.most for item in bounds if item.most is not None]
    return RoleBounds(
        role=role,
        min_replicas=max(least, default=None),
        max_replicas=max(most) if len(most) == len(bounds) else None,
        schedule=" and ".join(schedule.name for schedule in schedules),
    )
