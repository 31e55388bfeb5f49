"""The file of a served pool: its schema, and the equivalent spec of an InferencePool. Pure.

The file has the sections of the InferencePool's spec, read by the same classes: the same names, defaults and bounds.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml

from fairlead.engine_specs import MetricsSpec, adapter_names
from fairlead.errors import InvalidInput
from fairlead.instances import LEAST_WEIGHT, MOST_WEIGHT, Role
from fairlead.pool_rules import NEEDS_PREFILL_ROLE, UNKNOWN_TASK_CLASS, unknown_task_classes
from fairlead.pools import MAX_NAME, DrainSpec, parse_spec
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing_specs import RoutingSpec
from fairlead.schemas.reading import read
from fairlead.schemas.shapes import REQUIRED, Rule, listing, nested, number, text, truth
from fairlead.schemas.writing import written
from fairlead.tables import AFTER_PREFILL, MAX_PRIORITY_CLASSES, EarlyRejectionFacts, EngineFigures, PoolKey, PriorityClass, SloFacts
from fairlead_api.plans.kinds.engines import base_url, engine_name
from fairlead_api.plans.merge_patches import merged
from fairlead_process.yaml_documents import complaint, read_yaml

NAMESPACE = "default"
DEFAULT_NAME = "engines"
MOST_ENGINES = 1024
FILE = "file"
"""Path prefix that the schema gives to the file's fields; it is removed from every error message."""
NOT_OF_FILES = ("scaling", "ratio", "rollout", "gateway")
"""Sections of an InferencePool's spec that a file cannot have, because they are about the creation of instances or
about objects in a cluster.
"""
REAL_ENGINES = ("vllm", "sglang")
SECTIONS = frozenset({"adapters", "routing", "slo", "earlyRejection", "priorityClasses", "drain"})
"""Sections that a file and an InferencePool's spec have in common, except `engine`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEntry:
    """One engine of the file."""

    url: str = text("Address of the engine's OpenAI API, as http://HOST:PORT.", max_length=256, convert=base_url)
    name: str | None = text(
        "Name of the instance on pages and in metrics; host and port by default.",
        None,
        pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        max_length=63,
    )
    role: Role = text(
        "Its role: both, prefill (computes prompts) or decode (computes answers). All engines have role both, "
        "or some prefill and the others decode.",
        Role.BOTH.value,
        enum=tuple(role.value for role in Role),
        convert=Role,
    )
    weight: float = number("Its share of the keys, relative to engines of weight 1.", 1.0, minimum=LEAST_WEIGHT, maximum=MOST_WEIGHT)
    drain: bool = truth("Whether it is drained: it gets no new requests but stays in the pool.", False)

    @property
    def address(self) -> str:
        """The engine's address, host:port."""
        return self.url.removeprefix("http://")

    @property
    def id(self) -> str:
        """The instance's name."""
        return self.name or engine_name(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEngineSpec(EngineFigures):
    """The type of the engines, the figures about them that routing needs, such as their prefill speed, and where their
    metrics are read.
    """

    type: str | None = text("Type of all engines; by default detected from the first one that answers.", None, enum=REAL_ENGINES)
    metrics: MetricsSpec = nested(MetricsSpec, "Where the engines' own metrics are read.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPool:
    """A whole file, with all defaults applied."""

    RULES: ClassVar = (
        Rule(
            cel="",
            holds=lambda pool: len({engine.id for engine in pool.engines}) == len(pool.engines),
            fault=lambda pool: _twice([engine.id for engine in pool.engines]),
            message="give every engine another name",
        ),
        Rule(
            cel="",
            holds=lambda pool: pool.roles in ({Role.BOTH}, {Role.PREFILL, Role.DECODE}),
            fault=lambda pool: ("engines[].role", sorted(pool.roles)),
            message="give all engines the role both, or some prefill and all others decode",
        ),
        Rule(
            cel="",
            holds=lambda pool: pool.roles == {Role.BOTH} or pool.engine.type == "vllm",
            field="engine.type",
            message="prefill and decode need engine.type vllm; write it, or leave the roles out",
        ),
        Rule(
            cel="",
            holds=lambda pool: pool.early_rejection.mode != AFTER_PREFILL or pool.roles != {Role.BOTH},
            field="earlyRejection",
            message=NEEDS_PREFILL_ROLE,
        ),
        Rule(
            cel="",
            holds=lambda pool: not list(unknown_task_classes(pool)),
            fault=lambda pool: next(unknown_task_classes(pool)),
            message=UNKNOWN_TASK_CLASS,
        ),
        Rule(
            cel="",
            holds=lambda pool: not pool.adapters or pool.engine.type == "vllm",
            field="adapters",
            message="adapters need engine.type vllm; write it, or remove adapters",
        ),
        Rule(
            cel="",
            holds=lambda pool: pool.engine.kv_transfer is None or pool.engine.type == "vllm",
            field="engine.kvTransfer",
            message="engine.kvTransfer needs engine.type vllm; write it, or remove engine.kvTransfer",
        ),
    )

    engines: tuple[EngineEntry, ...] = listing(EngineEntry, "The engines, at least one.", REQUIRED, key="url", max_items=MOST_ENGINES)
    name: str = text("Name of the pool.", DEFAULT_NAME, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=MAX_NAME)
    model: str | None = text(
        "Model served, as clients name it; by default the first one that an engine lists.", None, pattern=r"^\S+$", max_length=256
    )
    adapters: tuple[str, ...] = adapter_names()
    engine: ServedEngineSpec = nested(ServedEngineSpec, "Figures about the engines that routing needs.")
    routing: RoutingSpec = nested(RoutingSpec, "How requests find their engine.")
    slo: SloFacts = nested(SloFacts, "Latency targets of the pool.")
    early_rejection: EarlyRejectionFacts = nested(EarlyRejectionFacts, "Refuses requests at arrival that cannot be served in time.")
    priority_classes: tuple[PriorityClass, ...] = listing(
        PriorityClass,
        "Classes of requests: they decide which requests are sent first and refused last. Without classes, all requests are alike.",
        (),
        key="name",
        max_items=MAX_PRIORITY_CLASSES,
    )
    drain: DrainSpec = nested(DrainSpec, "How an engine that was removed from the file is emptied.")

    @property
    def roles(self) -> set[Role]:
        """The roles of the pool's engines."""
        return {engine.role for engine in self.engines}

    @property
    def divides(self) -> bool:
        """Whether some engines of the pool prefill for others."""
        return self.roles != {Role.BOTH}

    @property
    def key(self) -> PoolKey:
        return PoolKey(namespace=NAMESPACE, name=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFile:
    """A parsed file: the document as written, and the pool with all defaults."""

    document: Mapping[str, Any]
    pool: ServedPool

    def spec(self, model: str, engine_type: str) -> dict[str, Any]:
        """Return the equivalent spec of an InferencePool, with all defaults. No instance is ever created from this
        spec.
        """
        sections = {name: value for name, value in self.document.items() if name in SECTIONS}
        engine = {"type": engine_type, **(self.document.get("engine") or {})}
        document = {
            "model": self.pool.model or model,
            **({} if self.pool.divides else {"replicas": 0}),
            "roles": [_role(role, self.pool) for role in sorted(self.pool.roles)],
            "engine": engine,
            **sections,
        }
        found = merged(written(parse_spec(document)), document)
        del found["engine"]["port"]
        return {name: value for name, value in found.items() if name not in NOT_OF_FILES}

    def spec_digest(self, model: str, engine_type: str) -> str:
        """Return a digest that changes exactly when the spec changes."""
        return digest(yaml.safe_dump(self.spec(model, engine_type)))


def parse_pool_file(content: str, policies: PolicyCatalogue) -> PoolFile:
    """Parse the YAML of a file. Raises InvalidInput, which names field, value and remedy."""
    try:
        document = read_yaml(content)
    except yaml.YAMLError as error:
        raise InvalidInput(FILE, None, f"correct the YAML: {complaint(error)}") from None
    return read_pool_file(document, policies)


def read_pool_file(document: object, policies: PolicyCatalogue) -> PoolFile:
    """Parse a file's document. Raises InvalidInput."""
    try:
        pool = read(ServedPool, document, FILE)
        policies.check(pool.routing, {engine.role for engine in pool.engines} or {Role.BOTH})
    except InvalidInput as error:
        field = error.field.removeprefix(f"{FILE}.").removeprefix("spec.")
        raise InvalidInput(field, error.value, error.remedy.replace(f"the fields of {FILE} are", "the fields of the file are")) from None
    assert isinstance(document, Mapping)
    return PoolFile(document=dict(document), pool=pool)


def _role(role: Role, pool: ServedPool) -> dict[str, Any]:
    """Return the role as an InferencePool declares it. Prefill and decode need a pod template and at least one instance
    by the schema; no pod is ever created from this template.
    """
    if role is Role.BOTH:
        return {"name": "both", "maxReplicas": 0}
    engines = sum(engine.role is role for engine in pool.engines)
    return {"name": role.value, "maxReplicas": engines, "template": {"spec": {"containers": [{"name": "engine", "image": "none"}]}}}


def digest(content: str) -> str:
    """Return sixteen hex digits that identify a text."""
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _twice(names: list[str]) -> tuple[str, object]:
    place = next(place for place, name in enumerate(names) if name in names[:place])
    return f"engines[{place}].name", names[place]
