#!/usr/bin/env python3
"""Writes docs/metrics.md, the page of every metric of every process, from the metric objects and a page of a simulated
engine.

With `--check` it only compares the page.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from generated_page import DOCS, settle, table
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from fairlead_api.http.telemetry import Telemetry
from fairlead_operator.metrics import OperatorMetrics
from fairlead_process.process_metrics import count_log_lines
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_serve.metrics import SourceMetrics
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.engine_server.engine import ServedEngine
from fairlead_simulator.engine_server.metrics_text import render_metrics
from fairlead_simulator.engine_server.statistics import EngineStatistics
from fairlead_web.frame.metrics import WebMetrics

INTRODUCTION = """
# Metrics

Every metric of every process, as Prometheus reads it. This page is written by `make generate` from the objects that count. A histogram `x_seconds` has
the series `x_seconds_bucket`, `x_seconds_count` and `x_seconds_sum`. The chart's alerts and dashboard (`monitoring` in its values) read them; a test
holds both to this page. A family is there from the start, a series of it once there is something to tell.
"""

LABELS = {
    "basis": "what a belief came from: `events`, `expected` (a prompt was just sent there) or `history` (what the router sent before)",
    "by": "who chose or predicted: a model, or else why not",
    "bytes_per_token": "`in-use`, or `declared` in the pool",
    "cause": "why a prefill instance had no part",
    "code": "code of the error in the answer",
    "fault": "what was wrong with a model",
    "instance": "name of the instance",
    "job": "name of the background job",
    "kind": "what is counted of several",
    "known": "how much of a prompt's tokens was known",
    "level": "level of the line: `WARNING`, `ERROR` or `CRITICAL`",
    "method": "method of the HTTP request",
    "of": "what an error is of, or the mean that it compares with",
    "obstacle": "why an answer did not go on elsewhere: see gateway.md",
    "fate": "of moved caches `moved`, `late`, `lost`, `refused` or `unnamed`: see gateway.md; of spans see tracing.md",
    "why": "how the engine of an answer failed, as `kind`, or `drained`",
    "outcome": "how it ended: `served`, `failed`, `cancelled`, `refused` or `rejected-by-engine`; of `fairlead_router_tokenizing_total` see kv-events.md",
    "phase": "`prefill` or `decode`",
    "pool": "namespace/name of the pool",
    "priority_class": "a class that the pool declares, or `default`",
    "rank": "data-parallel rank of the engine",
    "reason": "why, in the same word as in the answer",
    "result": "`ok`, `failed`, or `unavailable` while the database is away",
    "role": "`both`, `prefill` or `decode`",
    "currency": "currency of the prices, as ISO 4217 writes it",
    "route": "path of the route, with names in braces",
    "source": "how a figure is known: `measured`, `fitted`, `declared` or `unknown`",
    "state": "which state is meant",
    "step": "`reconcile`, `finalize` or `report-deletion`",
    "status": "status of the answer",
}
ENGINE_LABELS = {
    "engine": "number of the engine in its process",
    "finished_reason": "why a request ended",
    "sleep_state": "`awake`, `weights_offloaded` (level 1) or `discard_all` (level 2)",
    "handler": "path of the route",
    "method": "method of the HTTP request",
    "model_name": "the model served",
    "source": "where a prompt's tokens came from",
    "status": "class of the status, such as `2xx`",
    "block_size": "tokens per block",
    "num_gpu_blocks": "blocks of the cache",
    "enable_prefix_caching": "whether prefixes are cached",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric as the page shows it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def family(name: str, kind: str, labels: Iterable[str], text: str) -> Family:
    """Return a metric as the page shows it. A counter gets the suffix of its series, `_total`."""
    return Family(name=name + "_total" * (kind == "counter"), kind=kind, labels=tuple(labels), help=text)


def of_routers() -> list[Family]:
    """Return the metrics of a router."""
    return [family(one.name, one.type, vars(one)["_labelnames"], one.documentation) for one in RouterMetrics().collect()]


def of_the_api() -> list[Family]:
    """Return the metrics of the control API."""
    return of_registry(Telemetry().registry)


def of_registry(registry: CollectorRegistry) -> list[Family]:
    """Return the metrics of a process whose counters are all in one registry. Metrics of the process itself, such as
    its memory, come last.
    """
    labels = {vars(one)["_name"]: vars(one)["_labelnames"] for one in registry._collector_to_names if isinstance(one, MetricWrapperBase)}
    families = [family(one.name, one.type or "", labels.get(one.name, ()), one.documentation) for one in registry.collect()]
    return sorted(families, key=lambda one: one.name.startswith("process_"))


def counted(registry: CollectorRegistry) -> CollectorRegistry:
    """Return the registry with the counter of log lines."""
    count_log_lines(registry)
    return registry


def of_simulated_engines() -> list[Family]:
    """Return the metrics of a simulated engine, from its metrics page."""
    engine = ServedEngine(preset("dualmap-910b4-qwen7b"), bytes_per_token=4, max_waiting=1, statistics=EngineStatistics())
    text = render_metrics([engine], "model", {("/v1/models", "GET", "2xx"): 1}).decode()
    return [
        family(one.name, one.type, sorted({label for sample in one.samples for label in sample.labels} - {"le"}), one.documentation)
        for one in text_string_to_metric_families(text)
    ]


def section(title: str, where: str, families: Sequence[Family], labels: dict[str, str]) -> str:
    """Return the section of a process. Raises KeyError for a label without a meaning in `labels`."""
    rows = [(f"`{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.help) for one in families]
    used = sorted({label for one in families for label in one.labels})
    meanings = table(("Label", "Meaning"), [(f"`{label}`", labels[label]) for label in used])
    return "\n".join((f"## {title}\n", f"{where}\n", table(("Metric", "Type", "Labels", "Meaning"), rows), meanings))


def page() -> str:
    """Return the whole page."""
    return "\n".join(
        (
            INTRODUCTION.strip() + "\n",
            section(
                "Router",
                "`GET /metrics` on the operators' port: 127.0.0.1:9000, or `--admin-host` and `--admin-port`. Counts are since the process started.",
                of_routers(),
                LABELS,
            ),
            section(
                "Control API",
                "`GET /metrics` with a token of the role viewer (`Authorization: Bearer …`); of this process, since it started.",
                of_the_api(),
                LABELS,
            ),
            section(
                "Operator",
                "`GET /metrics` beside its health: `FAIRLEAD_OPERATOR_HEALTH_PORT`. Of this process, since it started.",
                of_registry(counted(OperatorMetrics().registry)),
                LABELS | {"outcome": "`ok`, `unavailable` (the Kubernetes API gave no answer), `refused` (it said no) or `broke`"},
            ),
            section(
                "Web UI",
                "On the page of the control API, in whose process it is. Alone (`python -m fairlead_web.main`): `GET /metrics` at `--admin-port`, "
                "with the figures of its process and log.",
                of_registry(WebMetrics(CollectorRegistry()).registry),
                LABELS | {"route": "path of the page, with names in braces; `other`: sign-in, static files, unknown addresses"},
            ),
            section(
                "Source of `fairlead serve`",
                "`GET /metrics` on 127.0.0.1:9001 or the next free port, as its summary says.",
                of_registry(counted(SourceMetrics().registry)),
                LABELS | {"outcome": "`ok` or `broke`", "state": "state of the engine"},
            ),
            section(
                "Simulated engine",
                "`GET /metrics` on its own port, under vLLM's names, so that routers read it as they read vLLM.",
                of_simulated_engines(),
                ENGINE_LABELS,
            ),
        )
    )


if __name__ == "__main__":
    sys.exit(settle(DOCS / "metrics.md", page()))
