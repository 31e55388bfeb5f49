"""The Prometheus page."""

from fairlead.capabilities import Figure, Source, declared
from fairlead.routing.contracts.estimates import EstimateReport
from fairlead.routing.contracts.loads import GivenWork
from fairlead.routing.knowledge.progress import EngineProgress, Movement
from fairlead.routing.knowledge.token_sizes import TokenSizeReport
from fairlead_router.engines.engine_pages import EngineFigures
from fairlead_router.metrics.instance_metrics import InstanceReading
from fairlead_router.metrics.metrics import RouterMetrics, render
from fairlead_router.metrics.pool_counters import Distribution
from fairlead_router.metrics.pool_metrics import PoolReading


def test_counters_appear_with_bounded_labels() -> None:
    metrics = RouterMetrics()
    counters = metrics.pool("default/chat")
    counters.served = 3
    counters.refused["rejected-queue-full"] = 2
    metrics.readings = [InstanceReading("default/chat", "i0", 4, 1, 0.5)]
    page = render(metrics).decode()
    assert 'fairlead_router_requests_total{outcome="served",pool="default/chat"} 3.0' in page
    assert 'fairlead_router_requests_total{outcome="refused",pool="default/chat"} 2.0' in page
    assert 'fairlead_router_refusals_total{pool="default/chat",reason="rejected-queue-full"} 2.0' in page
    assert 'fairlead_router_in_flight{instance="i0",pool="default/chat"} 4.0' in page
    assert 'fairlead_router_kv_usage{instance="i0",pool="default/chat"} 0.5' in page


def test_what_is_the_clients_fault_and_what_goes_past_the_scheduler_are_apart_from_failures() -> None:
    metrics = RouterMetrics()
    counters = metrics.pool("default/chat")
    counters.rejected_by_engine = 4
    counters.direct["served"] = 5
    counters.upstream_errors["stalled"] = 1
    metrics.client_errors["headers_timeout"] = 6
    page = render(metrics).decode()
    assert 'fairlead_router_requests_total{outcome="rejected-by-engine",pool="default/chat"} 4.0' in page
    assert 'fairlead_router_requests_total{outcome="failed",pool="default/chat"} 0.0' in page
    assert 'fairlead_router_direct_requests_total{outcome="served",pool="default/chat"} 5.0' in page
    assert 'fairlead_router_upstream_errors_total{kind="stalled",pool="default/chat"} 1.0' in page
    assert 'fairlead_router_client_errors_total{code="headers_timeout"} 6.0' in page


def test_a_distribution_counts_each_value_once() -> None:
    distribution = Distribution()
    for seconds in (0.001, 0.3, 1000.0):
        distribution.observe(seconds)
    rows = dict(distribution.cumulative())
    assert rows["0.001"] == 1
    assert rows["0.25"] == 1
    assert rows["0.5"] == 2
    assert rows["+Inf"] == 3
    assert distribution.total == 1000.301


def estimate(seconds_per_token: float | None = None, error: float | None = None, declared_error: float | None = None) -> EstimateReport:
    return EstimateReport(
        form="configured", samples=9, in_use=False, seconds_per_token=seconds_per_token, error=error, declared_error=declared_error
    )


MEASURED = Figure(value=2000.0, source=Source.MEASURED, samples=41, age_seconds=20.0)


def test_a_pool_tells_what_it_learnt_of_its_engines_and_how_wrong_that_is() -> None:
    metrics = RouterMetrics()
    nothing = estimate()
    told = TokenSizeReport(bytes_per_token=2.1, learnt=2.1, samples=40, error=0.05, declared_error=0.48)
    unreported = TokenSizeReport(bytes_per_token=4.0, learnt=None, samples=0, error=None, declared_error=None)
    metrics.pool_readings = [
        PoolReading("default/chat", 3, told, MEASURED, estimate(0.0005, 0.1, 0.5), estimate(0.02, 0.07), 3),
        PoolReading("default/code", 0, unreported, declared(6250.0), nothing, nothing),
    ]
    page = render(metrics).decode()
    assert 'fairlead_router_held{pool="default/chat"} 3.0' in page
    assert 'fairlead_router_assumed_routers{pool="default/chat"} 3.0' in page
    assert 'fairlead_router_assumed_routers{pool="default/code"} 1.0' in page
    assert 'fairlead_router_bytes_per_token{pool="default/chat"} 2.1' in page
    assert 'fairlead_router_bytes_per_token{pool="default/code"} 4.0' in page
    assert 'fairlead_router_prompt_tokens_error{bytes_per_token="in-use",pool="default/chat"} 0.05' in page
    assert 'fairlead_router_prompt_tokens_error{bytes_per_token="declared",pool="default/chat"} 0.48' in page
    assert 'fairlead_router_prompt_tokens_error{bytes_per_token="in-use",pool="default/code"}' not in page
    assert 'fairlead_router_prefill_tokens_per_second{pool="default/chat",source="measured"} 2000.0' in page
    assert 'fairlead_router_prefill_tokens_per_second{pool="default/code",source="declared"} 6250.0' in page
    assert 'fairlead_router_seconds_per_token{phase="prefill",pool="default/chat"} 0.0005' in page
    assert 'fairlead_router_seconds_per_token{phase="decode",pool="default/chat"} 0.02' in page
    assert 'fairlead_router_time_estimate_error{by="learnt",phase="prefill",pool="default/chat"} 0.1' in page
    assert 'fairlead_router_time_estimate_error{by="declared",phase="prefill",pool="default/chat"} 0.5' in page
    assert 'fairlead_router_time_estimate_error{by="declared",phase="decode"' not in page
    assert 'fairlead_router_seconds_per_token{phase="prefill",pool="default/code"}' not in page


def test_an_engine_is_as_its_worst_rank_and_each_rank_has_its_own_state() -> None:
    lives: dict[int | None, EngineProgress] = {rank: EngineProgress() for rank in range(3)}
    work = GivenWork(requests=1)
    for second in range(100):
        for rank, one in lives.items():
            one.saw(Movement(running=1, counts=(float(second if rank != 1 or second < 50 else 50),)), work, float(second))
    metrics = RouterMetrics()
    ranks = {rank: EngineFigures(running=rank, kv_usage=0.25) for rank in range(3)}
    metrics.readings = [InstanceReading("default/chat", "i0", 4, 1, 0.5, EngineFigures(running=3), ranks, lives)]
    page = render(metrics).decode()
    assert 'fairlead_router_engine_life{instance="i0",pool="default/chat",state="stalled"} 1.0' in page
    assert 'fairlead_router_rank_life{instance="i0",pool="default/chat",rank="1",state="stalled"} 1.0' in page
    assert 'fairlead_router_rank_life{instance="i0",pool="default/chat",rank="2",state="active"} 1.0' in page
    assert 'fairlead_router_rank_requests{instance="i0",pool="default/chat",rank="2",state="running"} 2.0' in page
    assert page.count("fairlead_router_engine_life{") == 1
