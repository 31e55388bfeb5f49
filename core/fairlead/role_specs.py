"""The section `spec.roles` of an InferencePool."""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fairlead import adoption_specs
from fairlead.costs.money import PRICE_PATTERN
from fairlead.instance_marks import MARKS, TEMPLATE_MARKS
from fairlead.instances import MAX_REPLICAS, Role
from fairlead.schemas.shapes import Rule, duration, nested, text, texts, verbatim, whole
from fairlead.selectors import SelectorSpec

MAX_NODES = 64
"""Maximum number of pods of one instance."""

_OBJECT: Mapping[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""The schema of an object. It is copied at each use, because YAML would write a shared object as a reference."""

_MOST_LABELS = 256


def _texts() -> dict[str, Any]:
    """Return the schema of labels or annotations. YAML allows numbers without quotes as their values. The schema
    refuses such a number when the pool is written and names its place; otherwise the API server would refuse it only
    when a pod is created.
    """
    return {"type": "object", "maxProperties": _MOST_LABELS, "additionalProperties": {"type": "string"}}


POD_TEMPLATE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "required": ["spec"],
    "properties": {
        "metadata": {**_OBJECT, "properties": {"labels": _texts(), "annotations": _texts()}},
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                        "required": ["name", "image"],
                        "properties": {
                            "name": {"type": "string", "minLength": 1},
                            "image": {"type": "string", "minLength": 1},
                            "ports": {"type": "array", "items": {**_OBJECT}},
                            "env": {"type": "array", "items": {**_OBJECT}},
                            "readinessProbe": {**_OBJECT},
                        },
                    },
                }
            },
        },
    },
}


_PARTS: tuple[tuple[str, frozenset[str]], ...] = (("labels", frozenset()), ("annotations", TEMPLATE_MARKS))
"""Parts of a template's metadata, each with the names reserved by Fairlead that a template may nevertheless use."""


def _reserved(role: Any) -> Iterator[tuple[str, str]]:
    """Yield, as its path and its name, each label and annotation in a role's templates that is reserved for single
    pods, where only the operator or people write it.
    """
    for field, template in (("template", role.template), ("workerTemplate", role.worker_template)):
        metadata = (template or {}).get("metadata") or {}
        for part, allowed in _PARTS:
            for name in metadata.get(part) or {}:
                if str(name).startswith(MARKS) and name not in allowed:
                    yield f"{field}.metadata.{part}", name


def without_marks(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec's document in which the templates have no labels and annotations that belong to a single pod."""
    cleaned = copy.deepcopy(dict(document))
    roles = cleaned.get("roles")
    for role in roles if isinstance(roles, list) else ():
        for metadata in (_inner(_inner(role, field), "metadata") for field in ("template", "workerTemplate")):
            for part, allowed in _PARTS:
                names = _inner(metadata, part)
                for name in [name for name in names if name.startswith(MARKS) and name not in allowed]:
                    del names[name]
    return cleaned


def _inner(document: object, name: str) -> dict[str, Any]:
    inner = document.get(name) if isinstance(document, dict) else None
    return inner if isinstance(inner, dict) else {}


def _no_reserved(field: str) -> str:
    """Return a CEL expression that is true if the template in this field has no reserved label or annotation (see
    `_reserved`).
    """
    place = f"self.{field}.metadata"
    of_ours = f"name.startsWith('{MARKS}')"
    allowed = " || ".join((f"!{of_ours}", *(f"name == '{mark}'" for mark in sorted(TEMPLATE_MARKS))))
    labels = f"!has({place}.labels) || {place}.labels.all(name, !{of_ours})"
    annotations = f"!has({place}.annotations) || {place}.annotations.all(name, {allowed})"
    return f"!has(self.{field}) || !has({place}) || (({labels}) && ({annotations}))"


MAX_ASLEEP = 64
"""Maximum number of a role's instances that are kept asleep."""
MAX_CLAIMS = 64
"""Maximum number of devices on which a role takes turns."""
MAX_TURN_PRIORITY = 100
"""Highest priority of a role that takes turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnsSpec:
    """Devices that several pools of a namespace share: at most one instance is awake on each."""

    RULES: ClassVar = (
        Rule(
            cel="has(self.claims) && size(self.claims) >= 1",
            holds=lambda turns: len(turns.claims) >= 1,
            field="claims",
            message="turns.claims must name at least one ResourceClaim; name it, or remove turns",
        ),
        Rule(
            cel="!has(self.claims) || self.claims.all(one, self.claims.exists_one(other, other == one))",
            holds=lambda turns: len(set(turns.claims)) == len(turns.claims),
            field="claims",
            message="turns.claims names a ResourceClaim twice; name each one once",
        ),
    )

    claims: tuple[str, ...] = texts(
        "Names of ResourceClaims of the namespace. Each instance uses the device of one of them, and pools that name the "
        "same claim take turns on its device.",
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        max_length=63,
        max_items=MAX_CLAIMS,
        convert=str,
    )
    at_least_seconds: float = duration(
        "Least time for which an instance serves before it gives up its device for another pool.", "60s", minimum=1, maximum=86400
    )
    priority: int = whole(
        "A pool gives up no device for a pool of a lower priority, except for the minReplicas of that pool.",
        0,
        minimum=0,
        maximum=MAX_TURN_PRIORITY,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmSpec:
    """Instances that sleep instead of being deleted, and wake in seconds."""

    asleep: int = whole(
        "How many surplus instances sleep instead of being deleted: they keep their pods, and their weights in the host's "
        "memory. When more instances are needed, sleeping ones are woken. 0: no instance sleeps.",
        minimum=0,
        maximum=MAX_ASLEEP,
    )
    turns: TurnsSpec | None = nested(
        TurnsSpec,
        "The devices on which the role's instances take turns with instances of other pools. Without it, instances share no "
        "device with other pools.",
        optional=True,
    )


_TAKES_NO_TURNS = "!has(self.warm) || !has(self.warm.turns) || "
"""CEL that is true for a role that takes no turns, followed by `||`. Each rule about roles that take turns begins with
it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """Number, bounds and pod template of one role's instances."""

    RULES: ClassVar = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            holds=lambda role: role.min_replicas <= role.max_replicas,
            field="minReplicas",
            message="minReplicas must not be greater than maxReplicas",
        ),
        Rule(
            cel="self.name != 'both' || !has(self.replicas)",
            holds=lambda role: role.name is not Role.BOTH or role.replicas is None,
            field="replicas",
            message="roles[].replicas is only for prefill and decode; write spec.replicas for the role both",
        ),
        Rule(
            cel="!has(self.replicas) || self.replicas >= self.minReplicas",
            holds=lambda role: role.replicas is None or role.replicas >= role.min_replicas,
            field="replicas",
            message="roles[].replicas must not be less than its minReplicas; raise replicas or lower minReplicas",
        ),
        Rule(
            cel="!has(self.replicas) || self.replicas <= self.maxReplicas",
            holds=lambda role: role.replicas is None or role.replicas <= role.max_replicas,
            field="replicas",
            message="roles[].replicas must not be greater than its maxReplicas; lower replicas or raise maxReplicas",
        ),
        Rule(
            cel="self.name == 'both' || self.maxReplicas >= 1",
            holds=lambda role: role.name is Role.BOTH or role.max_replicas >= 1,
            field="maxReplicas",
            message="maxReplicas of prefill and decode must be at least 1, because neither can serve without the other",
        ),
        Rule(
            cel="!has(self.nodes) || self.nodes == 1 || has(self.template)",
            holds=lambda role: role.spans == 1 or role.template is not None,
            field="nodes",
            message="roles[].nodes above 1 needs roles[].template, from which the operator makes the pods of a group; write it",
        ),
        Rule(
            cel="!has(self.workerTemplate) || (has(self.nodes) && self.nodes > 1)",
            holds=lambda role: role.worker_template is None or role.spans > 1,
            field="workerTemplate",
            message="roles[].workerTemplate is only for roles[].nodes above 1; remove it, or write nodes",
        ),
        Rule(
            cel="!has(self.warm) || !has(self.selector)",
            holds=lambda role: role.warm is None or role.selector is None,
            field="warm",
            message="roles[].warm is only for pods that the pool makes; pods with roles[].selector belong to their workload; remove warm",
        ),
        Rule(
            cel=_TAKES_NO_TURNS + "self.name == 'both'",
            holds=lambda role: role.turns is None or role.name is Role.BOTH,
            field="warm.turns",
            message="roles[].warm.turns is only for the role both; remove it",
        ),
        Rule(
            cel=_TAKES_NO_TURNS + "!has(self.nodes) || self.nodes == 1",
            holds=lambda role: role.turns is None or role.spans == 1,
            field="warm.turns",
            message="roles[].warm.turns is only for instances of one node; remove it, or nodes",
        ),
        Rule(
            cel=_TAKES_NO_TURNS + "self.warm.asleep >= 1",
            holds=lambda role: role.turns is None or role.asleep >= 1,
            field="warm.asleep",
            message="roles[].warm.turns needs warm.asleep of at least 1, since instances give up their devices by sleeping",
        ),
        Rule(
            cel=_TAKES_NO_TURNS + "!has(self.warm.turns.claims) || self.maxReplicas <= size(self.warm.turns.claims)",
            holds=lambda role: role.turns is None or role.max_replicas <= len(role.turns.claims),
            field="maxReplicas",
            message="maxReplicas must not be greater than the number of warm.turns.claims, as each awake instance needs one",
        ),
        Rule(
            cel=" && ".join(f"({_no_reserved(field)})" for field in ("template", "workerTemplate")),
            holds=lambda role: not any(_reserved(role)),
            fault=lambda role: next(_reserved(role)),
            message=f"labels and annotations that begin with {MARKS} belong to single pods, and a template would give them to every new pod; remove them "
            f"from roles[].template and workerTemplate, except {' and '.join(sorted(TEMPLATE_MARKS))}",
        ),
        *adoption_specs.OF_ROLES,
    )

    name: Role = text(
        "Name of the role; an instance of role both prefills and decodes.", enum=tuple(role.value for role in Role), convert=Role
    )
    replicas: int | None = whole("Desired number of instances; only for prefill and decode.", None, minimum=1, maximum=MAX_REPLICAS)
    min_replicas: int = whole(
        "Minimum number of instances, as long as enough are healthy. Prefill and decode have at least one, "
        "even if this is 0, unless the whole pool is at zero. In scaling.mode SLO, 0 lets the pool go to zero "
        "after scaling.zero.idleAfter.",
        0,
        maximum=MAX_REPLICAS,
    )
    max_replicas: int = whole("Maximum number of instances.", adoption_specs.MOST_BY_DEFAULT, maximum=MAX_REPLICAS)
    template: dict[str, Any] | None = verbatim(
        "Pod template of the instances, with the container `engine` (or the first) serving the OpenAI API. "
        "Optional for simulated engines, and for a role "
        "without instances (maxReplicas 0).",
        POD_TEMPLATE_SCHEMA,
    )
    nodes: int | None = whole(
        "Pods of one instance, for engines that span several nodes: a leader, which serves, and workers. 1 if left out. "
        "Above 1, each instance is a LeaderWorkerSet that the operator makes; the group is drained, removed and "
        "replaced as one.",
        None,
        minimum=1,
        maximum=MAX_NODES,
    )
    worker_template: dict[str, Any] | None = verbatim(
        "Pod template of the workers of an instance with several nodes; without it they run `template`.",
        POD_TEMPLATE_SCHEMA,
    )
    warm: WarmSpec | None = nested(
        WarmSpec,
        "Instances kept asleep for the next need, by vLLM's sleep mode. Its engines need --enable-sleep-mode and "
        "VLLM_SERVER_DEV_MODE=1. Not for engine.type sglang.",
        optional=True,
    )
    selector: SelectorSpec | None = nested(
        SelectorSpec,
        "Labels that select running pods as instances, instead of pods made from a template: pods of a "
        "Deployment, StatefulSet or LeaderWorkerSet.",
        optional=True,
    )
    scale_target_ref: adoption_specs.ScaleTargetSpec | None = nested(
        adoption_specs.ScaleTargetSpec,
        "The workload of the selected pods, scaled to the role's desired number; without it the pods only get requests.",
        optional=True,
    )

    cost_per_instance_hour: str | None = text(
        "Price of an hour of an instance of this role, instead of cost.perInstanceHour and in the currency of cost. An "
        "instance with several nodes is one instance.",
        None,
        pattern=PRICE_PATTERN,
    )

    @property
    def spans(self) -> int:
        """The number of pods of one instance."""
        return self.nodes or 1

    @property
    def turns(self) -> TurnsSpec | None:
        """The devices on which the role takes turns; None if the role takes no turns."""
        return self.warm.turns if self.warm is not None else None

    @property
    def asleep(self) -> int:
        """The maximum number of instances kept asleep."""
        return self.warm.asleep if self.warm is not None else 0

    @property
    def least(self) -> int:
        """Minimum number of instances that may be desired: `minReplicas`, but at least 1 for the roles prefill and
        decode.
        """
        return self.min_replicas if self.name is Role.BOTH else max(1, self.min_replicas)

    @property
    def most(self) -> int:
        """Maximum number of instances that may be desired. If the role selects pods of a workload that Fairlead does
        not scale, it is the general limit MAX_REPLICAS.
        """
        return self.max_replicas if self.selector is None or self.scale_target_ref is not None else MAX_REPLICAS
