"""Finds the three most important problems, as plain sentences with a link. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.instances import InstanceState
from fairlead_client.resources.instances import InstanceSummary
from fairlead_client.resources.pools import PoolSummary
from fairlead_web import formats
from fairlead_web.addresses import instance_path, pool_path
from fairlead_web.health import STARTING, out_of_slo

MOST = 3
KV_NEARLY_FULL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`level` is `bad` (breaching now) or `warn` (worth a look); `path` leads to the evidence."""

    level: str
    sentence: str
    path: str


def of_pools(pools: Iterable[PoolSummary]) -> tuple[Finding, ...]:
    """The problems of all pools, worst first."""
    found: list[tuple[int, Finding]] = []
    for pool in pools:
        name, path = f"{pool.namespace}/{pool.name}", pool_path(f"{pool.namespace}/{pool.name}")
        if not pool.ready and pool.ready_reason == STARTING:
            sentence = f"{name} is starting instances: {pool.serving} of {pool.desired} serve."
            found.append((3, Finding(level="warn", sentence=sentence, path=f"{path}/instances")))
        elif not pool.ready:
            found.append((0, Finding(level="bad", sentence=f"{name} is not ready: {pool.ready_message or pool.ready_reason}.", path=path)))
        if out_of_slo(pool):
            found.append((1, Finding(level="bad", sentence=_late(pool, name), path=f"{path}/heatmap?metric=ttft_p95")))
        if pool.rejections_per_second > 0:
            sentence = f"{name} refuses {formats.rate(pool.rejections_per_second)} requests per second."
            found.append((2, Finding(level="warn", sentence=sentence, path=f"/rejections?pool={name}")))
        if pool.draining:
            sentence = f"{name} is draining {pool.draining} instance{'s' if pool.draining > 1 else ''}."
            found.append((4, Finding(level="warn", sentence=sentence, path=f"{path}/instances?state=Draining")))
    return _first(found)


def _late(pool: PoolSummary, name: str) -> str:
    percentile = formats.percentile(pool.slo_percentile)
    sentence = (
        f"{name} is out of its SLO: {formats.share(pool.attainment)} of requests had their first token in time, the goal is {percentile} %"
    )
    if pool.ttft_at_percentile_seconds is None:
        return f"{sentence}."
    reached, limit = formats.seconds(pool.ttft_at_percentile_seconds), formats.seconds(pool.ttft_slo_seconds)
    return f"{sentence} (TTFT p{percentile} {reached}, limit {limit})."


def of_pool(pool: PoolSummary, instances: Iterable[InstanceSummary]) -> tuple[Finding, ...]:
    """The problems of one pool: its own findings, and instances that are lost or out of KV cache."""
    name = f"{pool.namespace}/{pool.name}"
    found = [(1, finding) for finding in of_pools([pool])]
    for instance in instances:
        path = instance_path(name, instance.id)
        if instance.state is InstanceState.LOST:
            found.append((0, Finding(level="bad", sentence=f"{instance.id} is lost: {instance.reason}.", path=path)))
        elif instance.kv_usage is not None and instance.kv_usage >= KV_NEARLY_FULL:
            sentence = f"{instance.id} has {formats.share(instance.kv_usage)} of its KV cache in use."
            found.append((3, Finding(level="warn", sentence=sentence, path=path)))
    return _first(found)


def _first(found: list[tuple[int, Finding]]) -> tuple[Finding, ...]:
    return tuple(finding for _, finding in sorted(found, key=lambda item: item[0])[:MOST])
