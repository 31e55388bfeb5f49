"""`spec.scaling.schedules`: the fields of a schedule in a pool's spec."""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from fairlead.instances import MAX_REPLICAS, Role
from fairlead.instants import read_instant
from fairlead.scaling.specs import RatioMethod, RatioMode, RatioSpec
from fairlead.schedules.crons import Cron, parse_cron
from fairlead.schedules.zones import parse_zone
from fairlead.schemas.shapes import Rule, duration, listing, nested, override, text, texts, truth, whole
from fairlead.tables import EarlyRejectionFacts, SloFacts

MAX_SCHEDULES = 32
"""Maximum number of schedules of a pool, so that the API server can bound the cost of the rules over them."""

MAX_STARTS = 64
"""Maximum number of instants in `skip` and in `runAt`."""

INSTANT_PATTERN = r"^2[01][0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})$"
"""The pattern of an instant in the years 2000 to 2199. Near the years 1 and 9999 there are hours that no time zone can
show.
"""


def _field(number: str, names: str = "") -> str:
    one = f"({number}|{names})" if names else number
    item = f"([*?]|{one}(-{one})?)(/0*[1-9][0-9]*)?"
    return f"{item}(,{item})*"


_MONTH = (
    "[jJ][aA][nN]|[fF][eE][bB]|[mM][aA][rR]|[aA][pP][rR]|[mM][aA][yY]|[jJ][uU][nN]"
    "|[jJ][uU][lL]|[aA][uU][gG]|[sS][eE][pP]|[oO][cC][tT]|[nN][oO][vV]|[dD][eE][cC]"
)
_WEEKDAY = "[sS][uU][nN]|[mM][oO][nN]|[tT][uU][eE]|[wW][eE][dD]|[tT][hH][uU]|[fF][rR][iI]|[sS][aA][tT]"
_FIELDS = (
    _field("0*[1-5]?[0-9]"),
    _field("0*(1?[0-9]|2[0-3])"),
    _field("0*([1-9]|[12][0-9]|3[01])"),
    _field("0*([1-9]|1[0-2])", _MONTH),
    _field("0*[0-6]", _WEEKDAY),
)
CRON_PATTERN = f"^ *({' +'.join(_FIELDS)}|@(yearly|annually|monthly|weekly|daily|midnight|hourly)) *$"
"""The pattern of cron expressions whose numbers are in range. `parse_cron` also refuses ranges that run backwards."""

NO_SUCH_DAY = (
    "^ *[^ ]+ +[^ ]+ +((30|31|30,31|30-31) +(0*2|[fF][eE][bB])"
    "|31 +(0*[469]|11|[aA][pP][rR]|[jJ][uU][nN]|[sS][eE][pP]|[nN][oO][vV])) +[*?] *$"
)
"""The pattern of cron expressions that never start, as far as a pattern can detect them; `parse_cron` finds all others.
"""


def parse_instant(text_: str) -> datetime:
    """Read an RFC 3339 text as an instant in UTC. Raises ValueError with a remedy."""
    try:
        return read_instant(text_).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("write an instant that exists, such as 2026-12-01T07:00:00Z") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRole:
    """The bounds of one role while a window is open; at least one bound is given."""

    RULES: ClassVar = (
        Rule(
            cel="has(self.replicas) != (has(self.minReplicas) || has(self.maxReplicas))",
            holds=lambda role: (role.replicas is not None) != (role.min_replicas is not None or role.max_replicas is not None),
            field="replicas",
            message="write either replicas, or minReplicas and maxReplicas or one of them",
        ),
        Rule(
            cel="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            holds=lambda role: role.min_replicas is None or role.max_replicas is None or role.min_replicas <= role.max_replicas,
            field="minReplicas",
            message="minReplicas must not be greater than maxReplicas",
        ),
        Rule(
            cel="self.name == 'both' || ((!has(self.replicas) || self.replicas > 0) && (!has(self.maxReplicas) || self.maxReplicas > 0))",
            holds=lambda role: role.name is Role.BOTH or role.most != 0,
            field="maxReplicas",
            message="prefill and decode cannot be scaled to 0, because neither serves without the other; write at least 1",
        ),
    )

    name: Role = text("Name of the role.", enum=tuple(role.value for role in Role), convert=Role)
    replicas: int | None = whole("Exactly this many instances: minReplicas and maxReplicas in one.", None, maximum=MAX_REPLICAS)
    min_replicas: int | None = whole("Minimum number of instances.", None, maximum=MAX_REPLICAS)
    max_replicas: int | None = whole("Maximum number of instances.", None, maximum=MAX_REPLICAS)

    @property
    def least(self) -> int | None:
        """The smallest number allowed; None = the role's own minimum."""
        return self.replicas if self.replicas is not None else self.min_replicas

    @property
    def most(self) -> int | None:
        """The largest number allowed; None = the role's own maximum."""
        return self.replicas if self.replicas is not None else self.max_replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class SloOverride:
    """Latency targets while a window is open; omitted targets stay the pool's."""

    ttft_seconds: float | None = override(SloFacts, "ttft_seconds")
    tpot_seconds: float | None = override(SloFacts, "tpot_seconds")
    percentile: float | None = override(SloFacts, "percentile")


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRejectionOverride:
    """Early rejection while a window is open; omitted fields stay the pool's."""

    mode: str | None = override(EarlyRejectionFacts, "mode")
    headroom: float | None = override(EarlyRejectionFacts, "headroom")


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioOverride:
    """The balance of prefill and decode while a window is open; omitted fields stay the pool's."""

    mode: RatioMode | None = override(RatioSpec, "mode")
    method: RatioMethod | None = override(RatioSpec, "method")
    band: float | None = override(RatioSpec, "band")
    donor_load: float | None = override(RatioSpec, "donor_load")
    receiver_load: float | None = override(RatioSpec, "receiver_load")
    period_seconds: float | None = override(RatioSpec, "period_seconds")
    periods: int | None = override(RatioSpec, "periods")
    cooldown_seconds: float | None = override(RatioSpec, "cooldown_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """Windows in time, and the values in force while one is open."""

    RULES: ClassVar = (
        Rule(
            cel="has(self.roles) && self.roles.size() > 0 || has(self.slo) || has(self.earlyRejection) || has(self.ratio)",
            holds=lambda schedule: bool(schedule.roles or schedule.slo or schedule.early_rejection or schedule.ratio),
            field="roles",
            message="a schedule must change something; write roles, slo, earlyRejection or ratio",
        ),
    )

    name: str = text("Name of the schedule.", pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    cron: Cron = text(
        "When windows start, as a CronJob's schedule: minute, hour, day of month, month, weekday.",
        max_length=128,
        rules=(
            Rule(
                cel=f"self.matches('{CRON_PATTERN}')",
                message="write five fields: minute, hour, day of month, month and weekday, such as '0 8 * * 1-5'",
            ),
            Rule(cel=f"!self.matches('{NO_SUCH_DAY}')", message="no year has this day; write a day that exists"),
        ),
        convert=parse_cron,
    )
    duration_seconds: float = duration("Length of a window, in elapsed time.", minimum=60.0, maximum=31 * 86400.0)
    time_zone: ZoneInfo = text(
        "Time zone of the cron by its name in the IANA database.",
        "UTC",
        pattern="^[A-Za-z][A-Za-z0-9_+/-]*$",
        max_length=64,
        convert=parse_zone,
    )
    paused: bool = truth("Whether the schedule is paused: no window is open, regardless of the cron.", False)
    follows_forecast: bool = truth(
        "Whether the schedule follows the pool's forecast: its windows are suspended while demand is outside of the forecast's band.", False
    )
    skip: tuple[datetime, ...] = texts(
        "Starts of windows that do not happen.", pattern=INSTANT_PATTERN, max_length=32, max_items=MAX_STARTS, convert=parse_instant
    )
    run_at: tuple[datetime, ...] = texts(
        "Starts of windows in addition to the cron's.", pattern=INSTANT_PATTERN, max_length=32, max_items=MAX_STARTS, convert=parse_instant
    )
    roles: tuple[ScheduledRole, ...] = listing(
        ScheduledRole, "Bounds of the number of instances per role while a window is open.", (), key="name", max_items=2
    )
    slo: SloOverride | None = nested(SloOverride, "Latency targets while a window is open.", optional=True)
    early_rejection: EarlyRejectionOverride | None = nested(
        EarlyRejectionOverride, "Early rejection while a window is open.", optional=True
    )
    ratio: RatioOverride | None = nested(RatioOverride, "How prefill and decode are balanced while a window is open.", optional=True)


def overridden(section: Any, given: SloOverride | EarlyRejectionOverride | RatioOverride) -> dict[str, Any]:
    """Return the fields of a pool's section, with the fields that an override sets replaced."""
    told = {item.name: getattr(section, item.name) for item in fields(section)}
    return told | {item.name: getattr(given, item.name) for item in fields(given) if getattr(given, item.name) is not None}
