"""Going back to a former revision of the whole spec: the merge patch, and the kinds of change it consists of. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.revisions import revision_data
from fairlead_api.plans.changes import SECTIONS
from fairlead_api.plans.merge_patches import between
from fairlead_client.resources.plans import PlanEffect, PlanKind


def revert_patch(number: int, spec: Mapping[str, Any], former: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes a spec what it was. Raises InvalidInput when it is so already."""
    if change := between(spec, former):
        return change
    raise InvalidInput("revision", number, "the spec is so already; write another")


def kinds_in(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[PlanKind]:
    """The kinds of plans that would each make a part of the change between two specs."""
    if _numbers(before) != _numbers(after):
        yield PlanKind.SCALE
    if revision_data(before) != revision_data(after):
        yield PlanKind.ROLLBACK
    if _at(before, "scaling", "schedules") != _at(after, "scaling", "schedules"):
        yield PlanKind.SCHEDULE
    for kind, section in SECTIONS.items():
        if any(_at(before, section.name, name) != _at(after, section.name, name) for name in section.fields):
            yield kind


def joined(effects: Sequence[PlanEffect]) -> PlanEffect:
    """The effect of several changes at once. The same sessions move by each, so the most that one moves is told."""
    if len(effects) == 1:
        return effects[0]
    predicted = [one for one in effects if one.predicted_attainment is not None or one.predicted_refusals is not None]
    only = predicted[0] if len(predicted) == 1 else PlanEffect()
    several = sum(one.sessions_moved > 0 for one in effects) > 1
    return PlanEffect(
        instances_added=sum(one.instances_added for one in effects),
        instances_removed=sum(one.instances_removed for one in effects),
        victims=list(dict.fromkeys(name for one in effects for name in one.victims)),
        sessions_moved=max((one.sessions_moved for one in effects), default=0),
        sessions_lost=max((one.sessions_lost for one in effects), default=0),
        cache_tokens_lost=max((one.cache_tokens_lost for one in effects), default=0),
        requests_in_flight=max((one.requests_in_flight for one in effects), default=0),
        key_share_moved=max((one.key_share_moved for one in effects), default=0.0),
        predicted_attainment=only.predicted_attainment,
        predicted_refusals=only.predicted_refusals,
        prediction_basis=only.prediction_basis,
        warnings=[words for one in effects for words in one.warnings],
        notes=[
            *(words for one in effects for words in one.notes),
            *(["Several parts move sessions; at least as many move as the part that moves most."] if several else []),
        ],
        heavy=any(one.heavy for one in effects),
    )


def _numbers(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("name", "replicas", "minReplicas", "maxReplicas")
    return spec.get("replicas"), [[role.get(name) for name in names] for role in spec.get("roles") or ()]


def _at(spec: Mapping[str, Any], section: str, name: str) -> Any:
    return (spec.get(section) or {}).get(name)
