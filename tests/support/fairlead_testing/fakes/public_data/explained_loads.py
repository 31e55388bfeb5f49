"""Explanations of the made-up load, computed by the API's own code."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from fairlead.tables import PoolKey
from fairlead_api.loads.explaining import TELLING, Evidence, Stretch, Stretches, explanation, two_windows
from fairlead_api.loads.heatmaps import Place
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.heatmaps import METRICS
from fairlead_client.resources.instances import InstanceSummary
from fairlead_client.resources.load_explanations import Flow, LoadExplanation, Moved, Senders, SenderShare, WindowChange
from fairlead_client.resources.moves import Migration
from fairlead_testing.fakes.public_data.loads import cell, limits_of

SENT_OF_RECORDED = 20


def explained(
    pool: str,
    instance: str,
    metric: str,
    start: datetime,
    end: datetime,
    instances: Sequence[InstanceSummary],
    migrations: Sequence[Migration],
    decisions: Sequence[RoutingDecision],
    limit: float | None = None,
) -> LoadExplanation:
    """Return the API's explanation of a load with four values per stretch. A twentieth of the requests is recorded."""
    where = two_windows(start, end, start.isoformat())
    middle = where.start + timedelta(seconds=where.step)
    now, before = (_stretches(pool, instances, first, where.step) for first in (middle, where.start))
    places = {one.id: Place(state=one.state, role=one.role, node=one.node) for one in instances}
    limits = limits_of(pool) if limit is None else replace(limits_of(pool), shown=(metric, limit))
    moves = [move for move in migrations if move.pool == pool and middle <= move.at < where.end]
    known = Evidence(
        senders=_senders([one for one in decisions if one.chosen == instance], min(middle, where.end - TELLING), where.end),
        arrived=_moved([move.source for move in moves if move.target == instance]),
        left=_moved([move.target for move in moves if move.source == instance]),
        changes=[WindowChange(at=middle, kind="revision", words="revision 3 changed slo.ttft from 8s to 5s", actor="oncall")],
    )
    found = Stretches(now=now, before=before, places=places, limits=limits)
    return explanation(PoolKey.parse(pool), instance, metric, where, found, known)


def _stretches(pool: str, instances: Sequence[InstanceSummary], first: datetime, seconds: int) -> dict[str, Stretch]:
    found = {}
    for one in instances:
        values = {}
        for metric in METRICS:
            inside = [cell(pool, one.id, metric, first.timestamp() + seconds * part / 4) for part in range(4)]
            known = [value for value in inside if value is not None]
            if known:
                values[metric] = (max(known), sum(known) / len(known))
        requests = round(values["requests"][1] * seconds) if "requests" in values else 0
        found[one.id] = Stretch(
            values=values, requests=requests, prompt_tokens=requests * 900, hit_tokens=requests * 400, output_tokens=requests * 80
        )
    return found


def _senders(decisions: Sequence[RoutingDecision], start: datetime, end: datetime) -> Senders:
    inside = [one for one in decisions if start <= one.at < end]
    tokens: Counter[str | None] = Counter()
    requests: Counter[str | None] = Counter()
    missed: Counter[str | None] = Counter()
    for one in inside:
        tokens[one.session] += one.prompt_tokens
        requests[one.session] += 1
        missed[one.session] += next(score.miss_tokens for score in one.candidates if score.instance == one.chosen)
    whole, to_prefill = tokens.total() or 1, missed.total() or 1

    def share(session: str | None) -> SenderShare:
        return SenderShare(
            session=session,
            requests=requests[session],
            prompt_tokens=tokens[session],
            tokens_share=tokens[session] / whole,
            prefill_tokens=missed[session],
            prefill_share=missed[session] / to_prefill,
        )

    return Senders(
        start=start,
        sent=len(inside) * SENT_OF_RECORDED,
        recorded=len(inside),
        sessions_seen=len(tokens),
        top=[share(session) for session, _ in tokens.most_common(10)],
        top_by_prefill=[share(session) for session, _ in missed.most_common(10)],
    )


def _moved(others: Sequence[str]) -> Moved:
    counted = Counter(others)
    flows = [Flow(instance=name, count=amount) for name, amount in counted.most_common(10)]
    return Moved(total=len(others), complete=True, instances=len(counted), flows=flows)
