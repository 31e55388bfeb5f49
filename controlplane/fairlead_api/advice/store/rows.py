"""Builds a pool's situation from database rows."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from fairlead.advice.situations import (
    PoolSituation,
    SeenAdvice,
    SeenBurn,
    SeenCondition,
    SeenFigure,
    SeenInstance,
    SeenMoves,
    SeenPredictions,
    SeenRole,
    SeenSilentRouter,
    SeenSizing,
    Served,
)
from fairlead.capabilities import joined
from fairlead.errors import FairleadError
from fairlead.instances import MAX_REPLICAS, Role
from fairlead.pools import PoolSpec, parse_spec
from fairlead.reports.predictors import ModelFigures
from fairlead.scaling.sizing import Capacity
from fairlead.scaling.specs import RatioMode, ScalingSpec
from fairlead.table_content import MirroredFacts
from fairlead.tables import MIGRATIONS_PAUSED, EarlyRejectionFacts, EngineFigures
from fairlead_api.advice.store.statements import MOVES_SECONDS, WINDOW_SECONDS
from fairlead_api.infra.errors import Conflict
from fairlead_api.infra.pool_rows import conditions_of, slo_of
from fairlead_api.pools.fixed_engines import check_possible, engines_file
from fairlead_api.pools.store.capabilities import remembered_capability
from fairlead_api.pools.store.summaries import desired_of
from fairlead_client.resources.plan_kinds import PlanKind

Traffic = dict[str, Served]
"""The counts of requests that each instance served, by the instance's name."""


def traffic_of(row: Any) -> Served:
    """Return the counts of requests that one instance served, from a row that holds these counts."""
    return Served(
        judged=int(row.judged),
        in_time=int(row.in_time),
        ttft_judged=int(row.ttft_judged),
        ttft_in_time=int(row.ttft_in_time),
        tpot_judged=int(row.tpot_judged),
        tpot_in_time=int(row.tpot_in_time),
        requests=int(row.requests),
        failed=int(row.failed),
        prefilled_tokens=int(row.prefilled_tokens),
    )


def mirrored(row: Any) -> MirroredFacts | None:
    """Return the facts from the pool's last valid spec, which the table pools stores; None before any valid spec was
    seen.
    """
    return msgspec.convert(row.facts, MirroredFacts) if row.facts else None


def declared(row: Any) -> PoolSpec | None:
    """Return the pool's spec from its row; None if the spec cannot be read."""
    try:
        return parse_spec(row.spec)
    except FairleadError:
        return None


def situation(
    row: Any,
    spec: PoolSpec | None,
    now: datetime,
    *,
    instances: tuple[SeenInstance, ...],
    gone: Traffic,
    refused: Mapping[str, int],
    failed: int,
    moves: Any,
    advised: Sequence[Any],
    routers: Any,
    silent_routers: tuple[SeenSilentRouter, ...],
    apart: Mapping[str, int],
    learnt: Any,
    figures: Sequence[Any],
    model: Any,
    burns: tuple[SeenBurn, ...],
    behind: float,
    sizing: SeenSizing | None,
) -> PoolSituation:
    """Return the situation of one pool; facts that the row does not have get default values."""
    facts = mirrored(row)
    engine = EngineFigures() if facts is None else facts.table.engine
    age = (now - row.created_at).total_seconds()
    return PoolSituation(
        pool=f"{row.namespace}/{row.name}",
        slo=slo_of(row),
        scaling=ScalingSpec() if spec is None else spec.scaling,
        early_rejection=EarlyRejectionFacts() if facts is None else facts.table.early_rejection,
        ratio_mode=RatioMode.FIXED if spec is None else spec.ratio.mode,
        capacity=Capacity.of(joined(remembered_capability(row, now), engine.declared)),
        roles=_roles(row, spec),
        can_scale=_possible(PlanKind.SCALE, row),
        can_drain=engines_file(row.annotations) is None,
        # over what there was of the window, so that a young pool's rates are not too low
        window_seconds=min(float(WINDOW_SECONDS), max(10.0, age)),
        instances=instances,
        gone=sum(gone.values(), Served()),
        refused=dict(refused),
        failed=failed,
        moves=SeenMoves(seconds=float(MOVES_SECONDS))
        if moves is None
        else SeenMoves(
            seconds=float(MOVES_SECONDS),
            known=int(moves.known),
            lost=int(moves.lost),
            net_seconds=float(moves.net),
            worst_seconds=float(moves.worst),
            bytes_per_token=moves.bytes_per_token,
        ),
        moves_paused=facts is not None and facts.table.routing.migrations == MIGRATIONS_PAUSED,
        conditions=tuple(
            SeenCondition(
                type=one.type,
                status=one.status,
                reason=one.reason,
                message=one.message,
                age_seconds=None if one.since is None else (now - one.since).total_seconds(),
            )
            for one in conditions_of(row)
        ),
        advised=tuple(
            SeenAdvice(
                controller=one.controller,
                role=Role(one.role),
                current=int(one.current),
                recommended=int(one.recommended),
                replicas=int(one.replicas),
                verdict=one.verdict,
                hold=one.hold,
                reason=one.reason,
                age_seconds=float(one.age),
            )
            for one in advised
        ),
        burns=tuple(one.within(max(10.0, age)) for one in burns),
        sizing=sizing,
        predictions=_predictions(learnt, model),
        figures=tuple(
            SeenFigure(
                quantity=one.quantity,
                predicted=one.predicted,
                observed=one.observed,
                declared=one.declared,
                off_seconds=float(one.off_seconds),
            )
            for one in figures
        ),
        silent_routers=silent_routers,
        apart=dict(apart),
        live_routers=0 if routers is None else int(routers.live),
        unheard_seconds=None if routers is None else max(0.0, float(routers.unheard)),
        unseen_seconds=max(0.0, (now - row.observed_at).total_seconds()),
        figures_behind_seconds=behind,
    )


def _roles(row: Any, spec: PoolSpec | None) -> tuple[SeenRole, ...]:
    bounds = {} if spec is None else {role.name.value: (role.min_replicas, role.max_replicas) for role in spec.roles}
    found = []
    for name, wanted in desired_of(row).items():
        least, most = bounds.get(name, (0, MAX_REPLICAS))
        found.append(SeenRole(role=Role(name), wanted=int(wanted), least=least, most=most))
    return tuple(found)


def _possible(kind: PlanKind, row: Any) -> bool:
    try:
        check_possible(kind, row.spec, row.annotations)
    except Conflict:
        return False
    return True


def _predictions(learnt: Any, model: Any) -> SeenPredictions:
    error = unused = None
    samples = 0 if learnt is None else int(learnt.samples or 0)
    if learnt is not None:
        error, unused = (learnt.measured, learnt.declared) if learnt.in_use else (learnt.declared, learnt.measured)
    if model is None:
        return SeenPredictions(error=error, unused_error=unused, samples=samples)
    figures = msgspec.convert(model, ModelFigures)
    return SeenPredictions(
        error=error,
        unused_error=unused,
        samples=samples,
        model_error_seconds=figures.error_seconds,
        formula_error_seconds=figures.formula_error_seconds,
        model_chooses=figures.learned_choices > 0,
    )
