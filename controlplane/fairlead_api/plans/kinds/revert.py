"""Restores the whole spec of an earlier revision: makes the patch, and determines which kinds of change the patch
contains.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead_api.plans.changes import Asked, Change, Kind, Spec, checked
from fairlead_api.plans.hand_overs import least_kept
from fairlead_api.plans.kinds.catalogue import kind_of
from fairlead_api.plans.merge_patches import between
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Question, Tried
from fairlead_api.pools.fixed_engines import check_possible
from fairlead_client.resources.plan_kinds import PLAN_KINDS, PlanKind
from fairlead_client.resources.plans import PlanEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertQuestion:
    """Finds the effect of restoring an earlier spec. It combines the questions of all kinds of plans that change the
    sections in which the specs differ.
    """

    parts: tuple[Question, ...]

    async def effect(self, known: Known) -> PlanEffect:
        return joined([await part.effect(known) for part in self.parts])

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("it changes several parts of the spec at once; plan each part separately to simulate it")


async def _change(asked: Asked) -> Change:
    target, found = await asked.its_pool()
    number = asked.request.revision or 0
    change = Change(target=target, found=found, patch=revert_patch(number, found.spec, await asked.spec_of(asked.pool, number)))
    require_possible(change)
    return change


def require_possible(change: Change) -> None:
    """Raises Conflict if the pool does not allow a part of the change, for example because its engines already run and
    Fairlead cannot start others.
    """
    for kind in kinds_in(change.part, change.after):
        check_possible(kind.name, change.found.spec, change.found.annotations)


def questions_of_parts(change: Change, policies: PolicyCatalogue) -> Sequence[Question]:
    """Return the object that finds the effect of a change of several sections of the spec, as a list of one. Raises
    InvalidInput for a spec that would be refused.
    """
    checked(change.part, change.patch, policies)
    parts = [one for kind in kinds_in(change.part, change.after) for one in kind.questions(change, policies)]
    return [RevertQuestion(parts=tuple(parts))]


def revert_patch(number: int, spec: Mapping[str, Any], former: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that restores a former spec. Raises InvalidInput if the present spec is the same."""
    if change := between(spec, former):
        return change
    raise InvalidInput("revision", number, "the spec already has these values; write another")


def kinds_in(before: Spec, after: Spec) -> Iterator[Kind]:
    """Yield the kinds of plans that together could change the spec `before` to the spec `after`."""
    return (kind for kind in map(kind_of, PLAN_KINDS) if kind.is_part(before, after))


def joined(effects: Sequence[PlanEffect]) -> PlanEffect:
    """Return the combined effect of several changes. They move the same sessions, so the largest number of moved
    sessions counts.
    """
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
        hand_over=least_kept(one.hand_over for one in effects),
    )


KIND = Kind(name=PlanKind.REVERT, change=_change, questions=questions_of_parts)
