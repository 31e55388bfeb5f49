"""Engines' own pages: metrics in the names of vLLM's versions, and models."""

import math
import threading
from dataclasses import replace
from typing import Any

import pytest

from fairlead.reports.engines import EngineTrouble, TroubledEngine
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import RoutingTable
from fairlead_process.tasks import LONG_BYTES
from fairlead_router.engines.engine_pages import (
    EngineFigures,
    EnginePage,
    PageUnreadable,
    ToldModels,
    fetched_blocks,
    read_models,
    read_page,
)
from fairlead_router.engines.silences import Silences
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools import engine_metrics
from fairlead_router.pools.engine_lives import EngineLives
from fairlead_router.pools.engine_metrics import EngineScraper
from fairlead_router.pools.known_engines import IMPLAUSIBLE_SECONDS, KnownEngines
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.relaying.sending import without_credentials
from fairlead_testing.builders.routing_tables import CHAT, routing_table

NAME = "vllm:kv_cache_usage_perc"

VLLM_0_32 = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny/qwen"} 3.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="tiny/qwen"} 2.0
# HELP vllm:num_requests_waiting_by_reason Number of waiting requests by reason.
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny/qwen",reason="capacity"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny/qwen",reason="deferred"} 1.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="tiny/qwen"} 0.25
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{_block_size_resolved="True",block_size="32",cache_dtype="auto",effective_attention_block_size="32",\
enable_prefix_caching="True",engine="0",hash_block_size="None",kv_cache_memory_bytes="1073741824",kv_cache_size_tokens="9600",\
mamba_block_size="None",num_cpu_blocks="None",num_gpu_blocks="300",num_gpu_blocks_override="300"} 1.0
"""
"""Lines of a real engine's page, with other figures."""

USAGE_OF_SGLANG = "sglang:token_usage"
SGLANG_0_5_23 = b"""\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="tiny/qwen",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 3.0
# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="tiny/qwen",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 2.0
# HELP sglang:token_usage The token usage.
# TYPE sglang:token_usage gauge
sglang:token_usage{engine_type="unified",model_name="tiny/qwen",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.25
# HELP sglang:max_total_num_tokens Maximum total number of tokens in the KV cache pool.
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{engine_type="unified",model_name="tiny/qwen",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 9600.0
# HELP sglang:max_total_num_tokens_swa Maximum total number of tokens in the SWA KV cache pool.
# TYPE sglang:max_total_num_tokens_swa gauge
sglang:max_total_num_tokens_swa{engine_type="unified",model_name="tiny/qwen",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.0
"""
"""A page with the names, help texts and labels of SGLang's source, as its Prometheus client prints them.

It was not recorded from a running engine.
"""


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (b"vllm:kv_cache_usage_perc 0.25\n", 0.25),
        (
            b'# HELP vllm:kv_cache_usage_perc share\n# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name="a b"} 0.5\n',
            0.5,
        ),
        (b'vllm:kv_cache_usage_perc{engine="0"} 0.1\nvllm:kv_cache_usage_perc{engine="1"} 0.7 1700000000\n', 0.7),
        (b"vllm:kv_cache_usage_percent 0.9\n", None),
        (b"other_vllm:kv_cache_usage_perc 0.9\n", None),
        (b"vllm:kv_cache_usage_perc NaN\n", None),
        (b"vllm:kv_cache_usage_perc\n", None),
        (b"vllm:kv_cache_usage_perc 0.3", 0.3),
        (b"", None),
    ],
)
def test_a_gauge_is_found_only_under_its_exact_name(page: bytes, expected: float | None) -> None:
    assert read_page(page, "vllm", NAME).kv_usage == expected


ONE = EngineFigures(kv_usage=0.25, running=3, waiting=2, kv_cache_tokens=9600)


def test_a_real_engines_page_is_understood() -> None:
    assert read_page(VLLM_0_32, "vllm", NAME) == EnginePage(kv_usage=0.25, running=3, waiting=2, kv_cache_tokens=9600, ranks={0: ONE})


def of_ranks(*usages: float) -> bytes:
    """Return the page of an engine with this many ranks, each as full as given."""
    return b"".join(
        VLLM_0_32.replace(b'engine="0"', b'engine="%d"' % rank).replace(b" 0.25", b" %g" % usage) for rank, usage in enumerate(usages)
    )


def test_of_an_engine_requests_and_cache_sizes_are_summed_and_of_each_rank_all_is_known() -> None:
    both = EnginePage(kv_usage=0.5, running=6, waiting=4, kv_cache_tokens=19200, ranks={0: ONE, 1: replace(ONE, kv_usage=0.5)})
    assert read_page(of_ranks(0.25, 0.5), "vllm", NAME) == both


def test_sglangs_page_is_understood() -> None:
    assert read_page(SGLANG_0_5_23, "sglang", USAGE_OF_SGLANG) == EnginePage(kv_usage=0.25, running=3, waiting=2, kv_cache_tokens=9600)
    assert read_page(VLLM_0_32, "sglang", USAGE_OF_SGLANG) == EnginePage()


def test_sglangs_ranks_are_summed_and_a_ranks_further_lines_are_not() -> None:
    first, second = (SGLANG_0_5_23.replace(b"{", b'{dp_rank="%d",' % rank) for rank in (0, 1))
    piped = first.replace(b'pp_rank="0"', b'pp_rank="1"')
    of_one_priority = b'sglang:num_queue_reqs{dp_rank="1",priority="7"} 1.0\n'
    page = first + piped + second.replace(b" 0.25", b" 0.5") + of_one_priority
    both = EnginePage(kv_usage=0.5, running=6, waiting=4, kv_cache_tokens=19200, ranks={0: ONE, 1: replace(ONE, kv_usage=0.5)})
    assert read_page(page, "sglang", USAGE_OF_SGLANG) == both


def test_older_names_count_where_the_newer_are_absent() -> None:
    old = VLLM_0_32.replace(b"kv_cache_usage_perc", b"gpu_cache_usage_perc").replace(b'kv_cache_size_tokens="9600",', b"")
    assert read_page(old, "vllm", NAME) == read_page(VLLM_0_32, "vllm", NAME)
    assert read_page(old + VLLM_0_32.replace(b" 0.25", b" 0.75"), "vllm", NAME).kv_usage == 0.75


def test_a_name_of_ones_own_has_no_others() -> None:
    assert read_page(VLLM_0_32, "vllm", "my:usage").kv_usage is None
    assert read_page(b"my:usage 0.5\n" + VLLM_0_32, "vllm", "my:usage").kv_usage == 0.5


def test_what_moves_with_an_engines_steps_is_read_by_rank() -> None:
    page = (
        VLLM_0_32 + b'vllm:iteration_tokens_total_count{engine="0",model_name="m"} 7876.0\nvllm:generation_tokens_total{engine="0"} 9.0\n'
    )
    ranks = page + page.replace(b'engine="0"', b'engine="1"').replace(b" 9.0", b" 7.0")
    told = read_page(ranks, "vllm", NAME)
    first, second = (told.ranks[rank].movement for rank in (0, 1))
    assert first is not None
    assert second is not None
    assert (first.running, first.counts[0], second.counts[0]) == (3, 9.0, 7.0)
    assert first != read_page(page.replace(b" 0.25", b" 0.26"), "vllm", NAME).movement, "a part of a long prompt"
    assert first == read_page(page, "vllm", NAME).movement, "the engine is its only rank"
    assert told.movement is not None
    assert (told.movement.running, told.movement.counts[0]) == (6, 16.0)
    asleep = (
        ranks + b'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0\nvllm:engine_sleep_state{engine="1",sleep_state="awake"} 1\n'
    )
    assert read_page(asleep, "vllm", NAME).ranks[0].movement is None
    assert read_page(asleep, "vllm", NAME).ranks[1].movement == second
    assert read_page(VLLM_0_32, "vllm", NAME).movement is None, "it shows no steps"


def test_the_movement_of_sglang_is_read_by_rank_and_not_by_its_parallel_processes() -> None:
    line = b'sglang:realtime_tokens_total{mode="decode",model_name="m",tp_rank="%d"} 5.0\n'
    movement = read_page(SGLANG_0_5_23 + line % 0 + line % 1, "sglang", USAGE_OF_SGLANG).movement
    assert movement is not None
    assert movement.counts[0] == 5.0


@pytest.mark.parametrize(("awake", "judged"), [(b"1.0", True), (b"0.0", False)])
def test_an_engine_that_sleeps_shows_nothing_that_could_stand_still(awake: bytes, judged: bool) -> None:
    page = VLLM_0_32 + b'vllm:generation_tokens_total{engine="0"} 9.0\nvllm:engine_sleep_state{engine="0",sleep_state="awake"} %s\n' % awake
    assert bool(read_page(page, "vllm", NAME).movement) is judged


def test_a_page_of_one_endless_line_is_read_in_a_time_that_grows_with_its_length_alone() -> None:
    """Bytes that begin no line are skipped without a search for their end."""

    class Counted(bytes):
        looks = 0

        def find(self, *arguments: Any) -> int:
            Counted.looks += arguments[0] == b"\n"
            return super().find(*arguments)

    read_page(Counted(b"x " + NAME.encode() * 20_000), "vllm", NAME)
    assert Counted.looks == 0


def test_a_list_of_models_names_them_or_is_none() -> None:
    assert read_models(b'{"object": "list", "data": [{"id": "a", "parent": null}, {"id": "b", "parent": "a"}]}') == ToldModels(
        names=("a", "b")
    )
    with pytest.raises(PageUnreadable):
        read_models(b'{"error": "no"}')


@pytest.mark.parametrize(
    ("owner", "engine_type"), [('"sglang"', "sglang"), ('"vllm"', "vllm"), ('"me"', "vllm"), ("null", "vllm"), ("7", "vllm")]
)
def test_a_list_of_models_tells_whether_the_engine_is_sglang(owner: str, engine_type: str) -> None:
    told = read_models(b'{"object": "list", "data": [{"id": "a", "owned_by": %s}]}' % owner.encode())
    assert told == ToldModels(names=("a",), engine_type=engine_type)


class Engines(UpstreamPool):
    """Answers with one metrics page, and one list of models or an error."""

    def __init__(self, page: bytes, models: bytes | None = None) -> None:
        super().__init__(lambda: 0.0, connect_seconds=1.0)
        self.page = page
        self.models = models
        self.failure: str | None = None
        self.asked: list[str] = []
        self.pages: dict[str, bytes] = {}

    async def fetch(
        self, address: str, path: str, *, seconds: float, limit: int = 0, headers: bytes = b"", body: bytes | None = None
    ) -> bytes:
        self.asked.append(path)
        if self.failure is not None:
            raise UpstreamFailure(self.failure, "of every page")
        if path in self.pages:
            return self.pages[path]
        if path == "/metrics":
            return self.page
        if self.models is None:
            raise UpstreamFailure("status", "401")
        return self.models


class Scraped:
    """A pool of one instance, and its scraper."""

    def __init__(self, page: bytes, models: bytes | None = None, table: RoutingTable | None = None) -> None:
        self.now = 0.0
        self.engines = Engines(page, models)
        metrics = RouterMetrics()
        self.pools = Pools(lambda table: PoolScheduler(table, "router-0", 1), metrics, lambda: self.now)
        self.pools.apply(table or routing_table(["127.0.0.1:1"]))
        self.silences = Silences(lambda: self.now)
        lives = EngineLives(self.silences, lambda pool, instance: {}, lambda: self.now)
        self.scraper = EngineScraper(self.pools, self.engines, self.silences, lives, metrics, lambda: self.now)

    @property
    def pool(self) -> Pool:
        pool = self.pools.get(CHAT)
        assert pool is not None
        return pool

    @property
    def kv_cache_tokens(self) -> int:
        """The size of an instance's KV cache that routing uses."""
        scheduler = self.pool.scheduler
        assert isinstance(scheduler, PoolScheduler)
        return scheduler.table.engine.kv_cache_tokens

    def found(self) -> list[str]:
        return [one.trouble for one in self.pool.engines.troubled()]


@pytest.mark.parametrize(("told", "kept"), [(b"0.5", 0.5), (b"-0.1", None), (b"1e300", None), (b"+Inf", None)])
async def test_a_usage_that_cannot_be_is_unknown_counted_and_told(told: bytes, kept: float | None) -> None:
    stage = Scraped(NAME.encode() + b" " + told + b"\n")
    await stage.scraper.scrape()
    assert stage.pool.engines.kv_usage.get("i0") == kept
    assert stage.pool.counters.implausible_usages == (kept is None)
    assert stage.found() == ([] if kept is not None else [EngineTrouble.KV_USAGE_IMPLAUSIBLE])
    stage.engines.page = b""
    await stage.scraper.scrape()
    assert stage.found() == [EngineTrouble.KV_USAGE_MISSING]
    stage.engines.page = VLLM_0_32
    await stage.scraper.scrape()
    assert stage.found() == []


async def test_routing_knows_how_many_requests_an_engine_has_not_begun_with_as_long_as_it_says_so() -> None:
    stage = Scraped(VLLM_0_32)
    stage.now = 7.0
    scheduler = stage.pool.scheduler
    assert isinstance(scheduler, PoolScheduler)
    await stage.scraper.scrape()
    load = scheduler.load("i0")
    assert load is not None
    assert (load.engine_waiting, load.engine_told_at) == (2, 7.0)
    stage.engines.page = b""
    await stage.scraper.scrape()
    assert load.engine_waiting is None


async def test_a_pool_of_sglang_is_read_by_sglangs_names() -> None:
    table = routing_table(["127.0.0.1:1"], engine_type="sglang")
    stage = Scraped(SGLANG_0_5_23, table=replace(table, engine=replace(table.engine, kv_usage_metric=USAGE_OF_SGLANG)))
    await stage.scraper.scrape()
    assert (stage.pool.engines.kv_usage, stage.kv_cache_tokens, stage.found()) == ({"i0": 0.25}, 9600, [])
    stage.engines.page = VLLM_0_32
    await stage.scraper.scrape()
    assert stage.found() == [EngineTrouble.KV_USAGE_MISSING], "an engine of another kind is told"


async def test_an_instance_of_an_earlier_template_is_read_and_served_as_its_own_engine() -> None:
    table = routing_table(["127.0.0.1:1", "127.0.0.1:2"], engine_type="vllm")
    former = replace(table.engine.of_instance(), metrics_path="/old", kv_usage_metric="old:usage", pass_client_credentials=True)
    table = replace(table, instances=(replace(table.instances[0], engine=former), table.instances[1]))
    stage = Scraped(VLLM_0_32, table=table)
    stage.engines.pages["/old"] = b"old:usage 0.75\n"
    await stage.scraper.scrape()
    assert stage.pool.engines.kv_usage == {"i0": 0.75, "i1": 0.25}
    assert stage.found() == []
    assert [stage.pool.passes_credentials(name) for name in ("i0", "i1")] == [True, False]
    assert stage.pool.pass_credentials, "what arrives is kept for the one that gets it"
    stage.pools.apply(replace(table, version=table.version + 1, instances=(replace(table.instances[0], engine=None),)))
    assert not stage.pool.pass_credentials


def test_of_a_call_credentials_and_nothing_else_are_left_out() -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\nx-request-id: a\r\n"
    secret = b"authorization: Bearer s\r\nx-api-key: s\r\ncookie: a=b\r\n"
    assert without_credentials(head + secret + b"accept: x-api-key: 1\r\n") == head + b"accept: x-api-key: 1\r\n"
    assert without_credentials(head) == head


async def test_an_engine_that_serves_another_model_is_told_until_it_serves_the_pools() -> None:
    stage = Scraped(VLLM_0_32, b'{"data": [{"id": "other"}]}')
    await stage.scraper.scrape()
    words = "it serves other, not mock; correct spec.model or --served-model-name"
    told = TroubledEngine(pool=CHAT, instance="i0", trouble=EngineTrouble.MODEL_NOT_SERVED, words=words)
    assert stage.pool.engines.troubled() == (told,)
    stage.engines.models = b'{"data": [{"id": "other"}, {"id": "mock"}]}'
    await stage.scraper.scrape()
    assert stage.found() == [EngineTrouble.MODEL_NOT_SERVED], "models are asked for now and then only"
    stage.now = 31.0
    await stage.scraper.scrape()
    assert stage.found() == [] and stage.engines.asked.count("/v1/models") == 2


async def test_an_engine_without_an_adapter_of_the_pool_is_told_until_it_has_loaded_it() -> None:
    table = replace(routing_table(["127.0.0.1:1"], engine_type="vllm"), adapters=("sql", "fr"))
    stage = Scraped(VLLM_0_32, b'{"data": [{"id": "mock"}, {"id": "fr"}]}', table=table)
    await stage.scraper.scrape()
    words = "it serves mock, fr, not sql; correct spec.adapters or --lora-modules"
    assert stage.pool.engines.troubled() == (
        TroubledEngine(pool=CHAT, instance="i0", trouble=EngineTrouble.ADAPTER_NOT_SERVED, words=words),
    )
    stage.engines.models, stage.now = b'{"data": [{"id": "mock"}, {"id": "fr"}, {"id": "sql"}]}', 31.0
    await stage.scraper.scrape()
    assert stage.found() == []


async def test_a_refusal_by_an_instance_that_has_left_keeps_no_other_from_being_read() -> None:
    stage = Scraped(VLLM_0_32, b'{"data": [{"id": "other"}]}', table=routing_table(["127.0.0.1:1", "127.0.0.1:2"]))
    stage.pools.apply(replace(routing_table(["127.0.0.1:1"]), version=2))
    stage.pool.choice.names.doubt("i1")
    stage.pool.choice.names.doubt("i0")
    await stage.scraper.read_doubted()
    assert stage.engines.asked == ["/v1/models"]


async def test_an_engine_that_does_not_list_its_models_is_believed() -> None:
    stage = Scraped(VLLM_0_32)
    await stage.scraper.scrape()
    assert stage.found() == []


async def test_the_smallest_cache_that_engines_tell_replaces_the_declared_size() -> None:
    stage = Scraped(VLLM_0_32)
    await stage.scraper.scrape()
    assert stage.kv_cache_tokens == 9600
    stage.engines.page = VLLM_0_32.replace(b"9600", b"9700")
    await stage.scraper.scrape()
    assert stage.kv_cache_tokens == 9600, "a small difference is not worth beginning anew"
    stage.pools.apply(routing_table(["127.0.0.1:1"], version=2))
    assert stage.kv_cache_tokens == 9600


def targets(stage: Scraped) -> dict[str, float | None]:
    """Return the scheduler's targets, each with its utilization."""
    scheduler = stage.pool.scheduler
    assert isinstance(scheduler, PoolScheduler)
    return {load.entry.id: load.kv_usage for load in scheduler.loads() if load.entry.accepting}


async def test_each_rank_of_an_engine_is_a_target_with_its_own_usage() -> None:
    stage = Scraped(of_ranks(0.1, 0.2, 0.3))
    assert targets(stage) == {"i0": None}
    await stage.scraper.scrape()
    assert targets(stage) == {"i0#0": 0.1, "i0#1": 0.2, "i0#2": 0.3}
    assert (stage.pool.engines.kv_usage, stage.kv_cache_tokens) == ({"i0": 0.3}, 9600), "a rank's cache, not the engine's"
    stage.pools.apply(routing_table(["127.0.0.1:1", "127.0.0.1:2"], version=2))
    assert set(targets(stage)) == {"i0#0", "i0#1", "i0#2", "i1"}


async def test_an_engine_of_one_rank_stays_as_it_is_whatever_its_number() -> None:
    stage = Scraped(VLLM_0_32.replace(b'engine="0"', b'engine="5"'))
    await stage.scraper.scrape()
    assert targets(stage) == {"i0": 0.25}


async def test_a_page_that_lacks_a_rank_for_a_moment_moves_nothing_and_another_process_begins_anew() -> None:
    stage = Scraped(of_ranks(0.1, 0.2, 0.3))
    await stage.scraper.scrape()
    stage.now, stage.engines.page = 5.0, of_ranks(0.1, 0.2)
    await stage.scraper.scrape()
    assert targets(stage) == {"i0#0": 0.1, "i0#1": 0.2, "i0#2": None}
    stage.engines.failure = "timeout"
    stage.now = 100.0
    await stage.scraper.scrape()
    assert set(targets(stage)) == {"i0#0", "i0#1", "i0#2"}, "an engine that is silent has lost nothing"
    stage.engines.failure = None
    await stage.scraper.scrape()
    assert set(targets(stage)) == {"i0#0", "i0#1"}
    stage.pools.apply(routing_table(["127.0.0.1:2"], version=2))
    assert set(targets(stage)) == {"i0"}


async def test_what_is_declared_of_an_instance_is_shared_by_its_ranks() -> None:
    stage = Scraped(of_ranks(0.1, 0.2).replace(b"cache_config_info", b"x"))
    scheduler = stage.pool.scheduler
    assert isinstance(scheduler, PoolScheduler)
    declared = scheduler.table.engine
    await stage.scraper.scrape()
    engine = scheduler.table.engine
    assert engine.prefill_tokens_per_second == declared.prefill_tokens_per_second / 2
    assert engine.kv_cache_tokens == declared.kv_cache_tokens // 2


async def test_of_sglang_the_ranks_count_that_the_server_tells_of_as_a_page_may_have_those_of_one_node() -> None:
    table = routing_table(["127.0.0.1:1"], engine_type="sglang")
    page = b"".join(SGLANG_0_5_23.replace(b"{", b'{dp_rank="%d",' % rank) for rank in (0, 1))
    stage = Scraped(page, table=replace(table, engine=replace(table.engine, kv_usage_metric=USAGE_OF_SGLANG)))
    stage.pool.engines.told_ranks["i0", "127.0.0.1:1"] = range(4)
    await stage.scraper.scrape()
    assert targets(stage) == {"i0#0": 0.25, "i0#1": 0.25, "i0#2": None, "i0#3": None}


@pytest.mark.parametrize(
    ("failure", "since"), [("timeout", 1.0), ("unreachable", 1.0), ("status", math.inf), ("refused", math.inf), (None, math.inf)]
)
async def test_an_engine_is_silent_from_the_first_scrape_that_gets_no_answer_at_all(failure: str | None, since: float) -> None:
    stage = Scraped(b"")
    for stage.now in (1.0, 2.0):
        stage.engines.failure = failure
        await stage.scraper.scrape()
    assert stage.silences.since("127.0.0.1:1") == since
    stage.engines.failure = None
    await stage.scraper.scrape()
    assert stage.silences.since("127.0.0.1:1") == math.inf


async def test_the_silence_of_an_engine_that_is_gone_is_forgotten() -> None:
    stage = Scraped(b"")
    stage.silences.unanswered("10.0.0.9:8000")
    await stage.scraper.scrape()
    assert stage.silences.since("10.0.0.9:8000") == math.inf


def test_a_tokens_kv_bytes_are_those_that_engines_fetched_by_the_tokens_that_came_with_them() -> None:
    page = b"""vllm:nixl_bytes_transferred_sum{engine="0"} 4096.0
vllm:nixl_bytes_transferred_sum{engine="1"} 1024.0
vllm:nixl_bytes_transferred_count{engine="0"} 2.0
vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"} 900.0
vllm:prompt_tokens_by_source_total{engine="0",source="external_kv_transfer"} 64.0
vllm:prompt_tokens_by_source_total{engine="1",source="external_kv_transfer"} 16.0
"""
    assert fetched_blocks(page) == (5120.0, 80.0)
    known = KnownEngines(CHAT)
    assert known.kv_bytes_per_token is None
    known.read_fetched("a", *fetched_blocks(page))
    known.read_fetched("b", 0.0, 0.0)
    assert known.kv_bytes_per_token == 64.0


async def test_what_cannot_be_true_is_told_while_an_engine_says_it_and_a_while_longer() -> None:
    stage = Scraped(NAME.encode() + b" 0.5\nvllm:num_requests_running 1e300\n")
    await stage.scraper.scrape()
    assert stage.found() == [EngineTrouble.REPORTS_IMPLAUSIBLE]
    stage.engines.page = VLLM_0_32
    await stage.scraper.scrape()
    assert stage.found() == []
    engines = stage.pool.engines
    engines.implausible("i0", "its answers", "sent too much \ud800\n", 0.0)
    engines.implausible("i0", "its metrics", "too", 100.0)
    (told,) = engines.troubled()
    assert told.words == "some of its reports are impossible and ignored: its answers: sent too much ??; its metrics: too"
    engines.forget_implausible(IMPLAUSIBLE_SECONDS)
    (told,) = engines.troubled()
    assert told.words == "some of its reports are impossible and ignored: its metrics: too"
    engines.forget_implausible(IMPLAUSIBLE_SECONDS + 100.0)
    assert stage.found() == []


async def test_a_cache_of_a_size_that_no_engine_has_changes_nothing() -> None:
    stage = Scraped(VLLM_0_32)
    before = stage.kv_cache_tokens
    for size in (10**15, 1):
        stage.engines.page = b'vllm:kv_cache_usage_perc 0.5\nvllm:cache_config_info{block_size="%d",num_gpu_blocks="%d"} 1\n' % (size, size)
        await stage.scraper.scrape()
        assert (stage.kv_cache_tokens, stage.found()) == (before, [EngineTrouble.REPORTS_IMPLAUSIBLE])


async def test_a_fault_of_ours_at_one_engine_leaves_the_others_their_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Scraped(VLLM_0_32, table=routing_table(["127.0.0.1:1", "127.0.0.1:2"]))
    fetch = stage.engines.fetch

    async def fails(address: str, path: str, **named: Any) -> bytes:
        if address == "127.0.0.1:1":
            raise ZeroDivisionError
        return await fetch(address, path, **named)

    monkeypatch.setattr(stage.engines, "fetch", fails)
    await stage.scraper.scrape()
    assert stage.pool.engines.kv_usage == {"i1": 0.25}


async def test_a_long_page_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def reads(*given: Any) -> EnginePage:
        threads.append(threading.get_ident())
        return read_page(*given)

    monkeypatch.setattr(engine_metrics, "read_page", reads)
    stage = Scraped(VLLM_0_32)
    await stage.scraper.scrape()
    stage.engines.page = VLLM_0_32 + b"# nothing\n" * LONG_BYTES
    await stage.scraper.scrape()
    short, long = threads
    assert short == threading.get_ident() != long
    assert stage.pool.engines.kv_usage == {"i0": 0.25}
