"""The kinds of plans, each with the facts that the API's checks, forms, commands and documentation need.

A kind is a member of `PlanKind` and its entry in the table below; the API carries it out in
`fairlead_api/plans/kinds/<kind>.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from fairlead.instances import LEAST_WEIGHT, MAX_REPLICAS, MOST_WEIGHT, Role
from fairlead.role_specs import MAX_ASLEEP
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.scaling.specs import RatioMethod, RatioMode, ScalingMode
from fairlead.tables import CONTINUING_MODES, EARLY_REJECTION_MODES, FAIRNESS_MODES, MIGRATIONS_MODES
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.kind_facts import Input, InputKind, KindFacts, choice_input, duration_input, number_input


class PlanKind(StrEnum):
    """The kind of change that a plan makes.

    `scale` changes the number of instances; `policy`, `slo`, `early-rejection`, `ring` (anchors per instance),
    `scaling` and `ratio` (the rules that change instances without a person) change a part of the pool's spec; `cordon`
    takes one instance out of service without replacing it, and `uncordon` lets it serve again; `schedule` creates,
    edits, deletes, pauses or resumes a schedule, skips a start of it or adds a start. `drain` empties one instance and
    replaces it, and `undrain` reverts that; `rollout` pauses or resumes a rollout or changes its bounds; `rollback`
    gives the spec the engine and templates of a former revision. `engines` adds an engine to a pool whose engines run
    already, or removes one. `migrations` pauses a pool's migrations, or resumes them. `delete` deletes the pool;
    undoing that creates the pool again with the same spec, but does not restore what was lost with it. `move` binds a
    session to another instance, and `unpin` removes a session's binding. `weight` changes the share of the keys that
    one instance has on the hash ring. `revert` restores the whole spec of a former revision, as the list of revisions
    numbers them. `bounds` changes a role's minReplicas and maxReplicas, its declared number if that is outside these
    bounds, and how many of its instances sleep; `pace` (how fast scaling acts), `sessions`, `draining`, `fairness` and
    `classes` change parts of the spec. `spec` replaces the whole spec. `create` creates a pool; undoing that deletes
    it.
    """

    SCALE = "scale"
    POLICY = "policy"
    SLO = "slo"
    EARLY_REJECTION = "early-rejection"
    RING = "ring"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    SCHEDULE = "schedule"
    SCALING = "scaling"
    RATIO = "ratio"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    ROLLOUT = "rollout"
    ROLLBACK = "rollback"
    ENGINES = "engines"
    MIGRATIONS = "migrations"
    DELETE = "delete"
    MOVE = "move"
    UNPIN = "unpin"
    WEIGHT = "weight"
    REVERT = "revert"
    BOUNDS = "bounds"
    PACE = "pace"
    SESSIONS = "sessions"
    DRAINING = "draining"
    FAIRNESS = "fairness"
    CLASSES = "classes"
    SPEC = "spec"
    CREATE = "create"

    @property
    def facts(self) -> KindFacts:
        """The facts about this kind of plan."""
        return _FACTS[self]


class ScheduleAction(StrEnum):
    """The action of a plan of kind `schedule`.

    `set` creates the schedule of this name or replaces it by `spec`, written as in a manifest. `skip` and `run` take
    the instant `start`. `replace` removes all schedules whose names begin with the given name, and adds the list
    `schedules`; the names in this list must begin with the given name too.
    """

    SET = "set"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"
    SKIP = "skip"
    RUN = "run"
    REPLACE = "replace"


class EngineAction(StrEnum):
    """The action of a plan of kind `engines`: `add` takes a `url` and optionally a `name` and a `weight`, `remove` a
    `name`.
    """

    ADD = "add"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The change to plan.

    `scale` takes `replicas`, and `role` in a pool of two roles. `cordon`, `uncordon`, `drain` and `undrain` take
    `instance`. `rollback` takes the number of a `revision` (none = the newest that differs from the spec), and `role`
    to restore only that role's template; `revert` takes the number of a `revision` of the whole spec. `move` takes a
    `session` and the `instance` to which it is bound, `unpin` a `session`. `delete` takes nothing. The other kinds take
    `fields`: fields of their section of the spec as a manifest writes them, such as `{"ttft": "3s"}`. A field that is
    left out stays unchanged, null restores its default. `weight` takes an `instance`, and in `fields` its `weight`
    relative to instances of weight 1, 0.01 to 100 (null = 1). `schedule` takes in `fields` the `name` of a schedule, an
    `action` of ScheduleAction, and its `spec`, `start` or `schedules`; `engines` an `action` of EngineAction and the
    fields of that action. `bounds` takes in `fields` a role's `minReplicas`, `maxReplicas` and `warm`, and `role` in a
    pool of two roles; `classes` the whole list `priorityClasses`; `spec` and `create` the whole spec, as a manifest
    writes it. `scale` and `slo` also take the `simulation` by which advice found the change; the plan then shows this
    simulation.
    """

    kind: PlanKind
    replicas: int | None = None
    role: Role | None = None
    instance: str | None = None
    fields: dict[str, Any] | None = None
    revision: int | None = None
    session: str | None = None
    simulation: str | None = None


def _pace(section: str, way: str, done: str) -> tuple[Input, ...]:
    """Return a form's inputs for one direction of scaling, up or down."""
    return (
        duration_input(f"{section}.stabilizationWindow", f"Scaling {way} waits for", "30s"),
        number_input(f"{section}.instances", f"Instances {done} in a period", "4", told=""),
        number_input(f"{section}.percent", f"or percent {done}", "100", hint="the larger one counts", told=""),
        duration_input(f"{section}.period", f"Period of scaling {way}", "60s"),
        duration_input(f"{section}.cooldown", f"Cooldown before scaling {way}", "60s"),
    )


_FACTS: Mapping[PlanKind, KindFacts] = MappingProxyType(
    {
        PlanKind.ENGINES: KindFacts(
            role=AccessRole.OPERATOR,
            title="Add an engine",
            inputs=(
                Input(name="url", words="Address", hint="http://HOST:PORT"),
                Input(name="name", words="Name", hint="by default host and port"),
                number_input("weight", "Weight", "2", hint="share of the keys, relative to engines of weight 1"),
            ),
            says={"action": EngineAction.ADD.value},
            pods_refusal="the pool has no list of engines, because its instances are pods; scale it, or its workload",
            example_title="one engine more",
            example={"fields": {"action": "add", "url": "http://10.0.0.7:8000"}},
        ),
        PlanKind.SCALE: KindFacts(
            role=AccessRole.OPERATOR,
            takes=("replicas", "role"),
            title="Scale",
            command="Change the number of instances.",
            advised=True,
            file_refusal="the number of instances is the number of engines there; add an engine to the file, or remove one",
            workload_refusal="their workload creates and deletes them; scale the workload, or name it in roles[].scaleTargetRef",
            for_scale_targets=True,
            example_title="scale",
            example={"replicas": 7},
        ),
        PlanKind.BOUNDS: KindFacts(
            role=AccessRole.ADMIN,
            takes=("fields", "role"),
            title="Bounds",
            inputs=(
                number_input("minReplicas", "Minimum", "1", hint="instances that scaling keeps", least=0, most=MAX_REPLICAS),
                number_input("maxReplicas", "Maximum", "16", hint="instances that scaling does not exceed", least=0, most=MAX_REPLICAS),
                number_input("warm.asleep", "Asleep", "2", hint="surplus instances that sleep", told="", least=0, most=MAX_ASLEEP),
            ),
            command="Change the minimum and the maximum number of instances of a role, and how many sleep.",
            file_refusal="the number of instances is the number of engines there; add an engine to the file, or remove one",
            workload_refusal="their workload creates and deletes them; scale the workload, or name it in roles[].scaleTargetRef",
            for_scale_targets=True,
            example_title="other bounds of automatic scaling",
            example={"fields": {"minReplicas": 2, "maxReplicas": 16}},
        ),
        PlanKind.ROLLBACK: KindFacts(
            role=AccessRole.OPERATOR,
            takes=("revision", "role"),
            needs=0,
            has_button=True,
            file_refusal="there is no template to go back to; restart the engines themselves",
            workload_refusal="their workload has the template; roll the workload back, for example with kubectl rollout undo",
            example_title="the engine and templates of a former revision",
            example={"revision": 3},
        ),
        PlanKind.SCHEDULE: KindFacts(
            role=AccessRole.OPERATOR,
            file_refusal="no window can start or stop an engine; write slo and earlyRejection in the file",
            example_title="a schedule",
            example={
                "fields": {
                    "name": "office-hours",
                    "action": "set",
                    "spec": {
                        "cron": "0 8 * * 1-5",
                        "duration": "10h",
                        "timeZone": "Europe/Berlin",
                        "roles": [{"name": "both", "minReplicas": 4}],
                    },
                }
            },
        ),
        PlanKind.POLICY: KindFacts(
            role=AccessRole.ADMIN,
            section="routing",
            title="Policy",
            inputs=(
                Input(name="policy", words="Policy", kind=InputKind.NAMES, options=tuple(sorted(BUILT_IN.names))),
                Input(
                    name="parameters",
                    words="Parameters",
                    kind=InputKind.YAML,
                    remedy="write one `name: value` per line",
                    hint="one “name: value” per line; replaces all",
                    told="",
                ),
            ),
            more_fields=("prefillsInFlight", "shadows"),
            example_title="another policy",
            example={"fields": {"policy": "dualmap", "parameters": {"slo_fraction": 0.5}}},
        ),
        PlanKind.SLO: KindFacts(
            role=AccessRole.ADMIN,
            section="slo",
            title="SLO",
            inputs=(
                duration_input("ttft", "Time to first token", "5s or 800ms", told="TTFT {}"),
                duration_input("tpot", "Time per output token", "100ms", told="TPOT {}"),
                number_input("percentile", "Goal, % in time", "95", told="goal {} %"),
            ),
            advised=True,
            example_title="tighter targets",
            example={"fields": {"ttft": "3s", "percentile": 95}},
        ),
        PlanKind.EARLY_REJECTION: KindFacts(
            role=AccessRole.ADMIN,
            section="earlyRejection",
            title="Early rejection",
            inputs=(
                choice_input("mode", "Mode", EARLY_REJECTION_MODES),
                number_input("headroom", "Headroom", "1.5", hint="limit as a multiple of the SLO", told="headroom {}"),
            ),
            example_title="early rejection by load",
            example={"fields": {"mode": "Load", "headroom": 1.5}},
        ),
        PlanKind.MIGRATIONS: KindFacts(
            role=AccessRole.OPERATOR,
            section="routing",
            title="Migrations",
            inputs=(choice_input("migrations", "Sessions move", MIGRATIONS_MODES),),
            example_title="no migrations for now",
            example={"fields": {"migrations": "Paused"}},
        ),
        PlanKind.SCALING: KindFacts(
            role=AccessRole.ADMIN,
            section="scaling",
            title="Scaling",
            inputs=(
                choice_input("mode", "Mode", ScalingMode),
                number_input("targetLoad", "Target load", "0.8", hint="share of an instance's capacity, 0 to 1", told="target load {}"),
                duration_input("zero.idleAfter", "Remove the last instances when idle for", "10m; in mode SLO, with minReplicas 0"),
                duration_input("zero.holdFor", "Hold a request for", "2m; while no instance serves but one is expected"),
                number_input("zero.heldRequests", "Requests held at most", "1024", hint="by each router", told=""),
            ),
            file_refusal="no load can start or stop an engine; add an engine to the file, or remove one",
            workload_refusal="their workload creates and deletes them; scale the workload, or name it in roles[].scaleTargetRef",
            for_scale_targets=True,
            example_title="scaling by the SLO",
            example={"fields": {"mode": "SLO", "targetLoad": 0.8}},
        ),
        PlanKind.PACE: KindFacts(
            role=AccessRole.ADMIN,
            section="scaling",
            title="Pace of scaling",
            inputs=(
                number_input("tolerance", "Tolerance", "0.1", hint="a difference below this share changes nothing", told=""),
                duration_input("period", "Time between recommendations", "15s"),
                duration_input("recovery", "Work off a queue within", "30s"),
                *_pace("scaleUp", "up", "added"),
                *_pace("scaleDown", "down", "removed"),
            ),
            file_refusal="no load can start or stop an engine; add an engine to the file, or remove one",
            workload_refusal="their workload creates and deletes them; scale the workload, or name it in roles[].scaleTargetRef",
            for_scale_targets=True,
            example_title="a slower way down",
            example={"fields": {"scaleDown": {"instances": 1, "percent": 0, "cooldown": "5m"}}},
        ),
        PlanKind.RATIO: KindFacts(
            role=AccessRole.ADMIN,
            section="ratio",
            title="Ratio",
            inputs=(
                choice_input("mode", "Mode", RatioMode),
                choice_input("method", "How an instance changes its role", RatioMethod, told=""),
                number_input("band", "Band", "0.3", hint="difference between the roles' loads that is tolerated", told="band {}"),
                duration_input("cooldown", "Cooldown", "2m"),
            ),
            for_pairs=True,
            file_refusal="every engine there prefills and decodes",
            workload_refusal="their workloads create and delete them; scale the workloads",
            example_title="a ratio that follows the load",
            example={"fields": {"mode": "Auto", "cooldown": "5m"}},
        ),
        PlanKind.ROLLOUT: KindFacts(
            role=AccessRole.OPERATOR,
            section="rollout",
            title="Rollout",
            inputs=(
                Input(
                    name="paused",
                    words="Paused",
                    kind=InputKind.SWITCH,
                    remedy="write true or false",
                    options=("false", "true"),
                    told="paused: {}",
                ),
                number_input("maxSurge", "Instances above the desired number", "1", told="surge {}"),
                number_input("maxUnavailable", "Instances that may be missing", "0", told=""),
            ),
            more_fields=("progressDeadline",),
            file_refusal="there is no template to roll out; restart the engines themselves",
            workload_refusal="their workload has the template and replaces its pods by its own rules",
            example_title="pause a rollout",
            example={"fields": {"paused": True}},
        ),
        PlanKind.SESSIONS: KindFacts(
            role=AccessRole.ADMIN,
            section="routing",
            title="Sessions",
            inputs=(
                duration_input(
                    "session.ttl", "A session keeps its home after its last request for", "30m", told="{} after the last request"
                ),
                Input(name="session.header", words="Header with the session's name", hint="such as x-session-id", told=""),
                choice_input("continueAnswers", "Continue begun answers elsewhere", CONTINUING_MODES, told=""),
                duration_input("handOverAfter", "A draining instance keeps such answers for", "5s"),
                number_input("handOverBudget", "Prefill for prompts of leaving sessions", "0.2", hint="share, 0 to 1", told=""),
            ),
            example_title="sessions that keep their homes longer",
            example={"fields": {"session": {"ttl": "2h"}}},
        ),
        PlanKind.DRAINING: KindFacts(
            role=AccessRole.ADMIN,
            section="drain",
            title="Draining",
            inputs=(duration_input("timeout", "Wait at most for requests in flight", "120s", told="at most {}"),),
            example_title="more time to drain",
            example={"fields": {"timeout": "10m"}},
        ),
        PlanKind.CLASSES: KindFacts(
            role=AccessRole.ADMIN,
            title="Priority classes",
            inputs=(Input(name="priorityClasses", words="Classes", kind=InputKind.ROWS, remedy="write a list of classes"),),
            example_title="classes of requests",
            example={
                "fields": {"priorityClasses": [{"name": "interactive", "priority": 100}, {"name": "batch", "priority": -10, "share": 0.6}]}
            },
        ),
        PlanKind.FAIRNESS: KindFacts(
            role=AccessRole.ADMIN,
            section="routing",
            title="Tenants",
            inputs=(choice_input("fairness", "Fair between", FAIRNESS_MODES),),
            example_title="tenants that share fairly",
            example={"fields": {"fairness": "Tenants"}},
        ),
        PlanKind.RING: KindFacts(
            role=AccessRole.ADMIN,
            section="routing",
            title="Ring",
            inputs=(number_input("anchorsPerInstance", "Anchors per instance", "160", told="{} anchors per instance"),),
            example_title="fewer anchors",
            example={"fields": {"anchorsPerInstance": 80}},
        ),
        PlanKind.CORDON: KindFacts(
            role=AccessRole.OPERATOR, takes=("instance",), example_title="cordon one instance", example={"instance": "chat-bk2xz4"}
        ),
        PlanKind.UNCORDON: KindFacts(
            role=AccessRole.OPERATOR, takes=("instance",), example_title="let it serve again", example={"instance": "chat-bk2xz4"}
        ),
        PlanKind.DRAIN: KindFacts(
            role=AccessRole.OPERATOR, takes=("instance",), example_title="drain one instance", example={"instance": "chat-bk2xz4"}
        ),
        PlanKind.UNDRAIN: KindFacts(
            role=AccessRole.OPERATOR, takes=("instance",), example_title="cancel a drain", example={"instance": "chat-bk2xz4"}
        ),
        PlanKind.WEIGHT: KindFacts(
            role=AccessRole.OPERATOR,
            takes=("instance", "fields"),
            inputs=(
                Input(
                    name="weight",
                    words="Weight",
                    kind=InputKind.NUMBER,
                    remedy=f"write a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, or null for 1",
                    least=LEAST_WEIGHT,
                    most=MOST_WEIGHT,
                ),
            ),
            command="Change an instance's share of the keys, relative to instances of weight 1.",
            example_title="half of the keys for one instance",
            example={"instance": "chat-bk2xz4", "fields": {"weight": 0.5}},
        ),
        PlanKind.DELETE: KindFacts(
            role=AccessRole.ADMIN,
            takes=(),
            needs=0,
            title="Delete the pool",
            command="Delete a pool: its sessions are lost. Undoing creates it again with the same spec.",
            deletes=True,
            file_refusal="it exists as long as `fairlead serve` runs; stop that process",
            example_title="delete the pool",
        ),
        PlanKind.MOVE: KindFacts(
            role=AccessRole.OPERATOR,
            takes=("session", "instance"),
            needs=2,
            remedies={"instance": "write the instance that should hold the session"},
            command="Move a session to another home: its next request goes to INSTANCE.",
            example_title="another home for a session",
            example={"session": "574-r2", "instance": "chat-bk2xz4"},
        ),
        PlanKind.UNPIN: KindFacts(
            role=AccessRole.OPERATOR,
            takes=("session",),
            command="Release a session from its home: the policy places its next request.",
            example_title="no home for a session",
            example={"session": "574-r2"},
        ),
        PlanKind.REVERT: KindFacts(
            role=AccessRole.ADMIN,
            takes=("revision",),
            command="Restore the whole spec of a revision from `fairlead pools history`, including policy and SLO.",
            example_title="the whole spec of a former revision",
            example={"revision": 3},
        ),
        PlanKind.SPEC: KindFacts(
            role=AccessRole.ADMIN,
            file_refusal="edit that file",
            example_title="another whole spec",
            example={"fields": {"model": "Qwen/Qwen3-32B", "replicas": 3, "slo": {"ttft": "3s"}}},
        ),
        PlanKind.CREATE: KindFacts(
            role=AccessRole.ADMIN,
            creates=True,
            file_refusal="this process has one pool; start `fairlead serve` once more for another",
            example_title="a new pool",
            example={"fields": {"model": "Qwen/Qwen3-32B", "replicas": 2, "engine": {"type": "simulated"}}},
        ),
    }
)

PLAN_KINDS = tuple(_FACTS)
"""All kinds, in the order of their forms."""

SECTIONS: Mapping[PlanKind, KindFacts] = MappingProxyType({kind: facts for kind, facts in _FACTS.items() if facts.section})
"""The kinds that change fields of a section of the spec."""

OF_INSTANCES = tuple(kind for kind in PlanKind if kind.facts.takes == ("instance",))
"""The kinds that need nothing but an instance's name."""

OF_SESSIONS = tuple(kind for kind in PlanKind if kind.facts.takes[:1] == ("session",))
"""The kinds of plans that set or remove a session's binding."""

_FOR_ADMINS = frozenset({"slo", "earlyRejection", "ratio"})


def role_for_schedule(subjects: Iterable[str]) -> AccessRole:
    """Return the role needed to change a schedule: the highest of the plan kinds for the fields that it sets."""
    return PlanKind.SCHEDULE.facts.role if _FOR_ADMINS.isdisjoint(subjects) else AccessRole.ADMIN
