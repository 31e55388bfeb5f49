"""Values on an engine's pages that cannot be true of any engine are not used."""

import sys

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.plausibility import (
    LEAST_CACHE_TOKENS,
    LONGEST_NAME,
    MOST_CACHE_TOKENS,
    MOST_INTEGER,
    MOST_MODELS,
    MOST_RANK_NAME,
    MOST_RANKS,
    MOST_REQUESTS,
    Bound,
    Hosts,
    shown,
)
from fairlead_router.engines.engine_pages import (
    METRIC_NAMES,
    EngineFigures,
    EnginePage,
    PageUnreadable,
    fetched_blocks,
    read_models,
    read_page,
)
from fairlead_router.engines.model_cards import read_cards
from fairlead_testing.examples import examples

USAGE = "vllm:kv_cache_usage_perc"
HUGE = "999999999999999"


def read(*lines: str) -> EnginePage:
    return read_page("\n".join(lines).encode(), "vllm", USAGE)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f'vllm:cache_config_info{{block_size="{HUGE}",num_gpu_blocks="{HUGE}"}} 1', "block_size of vllm:cache_config_info is 1e+15"),
        ('vllm:cache_config_info{block_size="1",num_gpu_blocks="1"} 1', "vllm:cache_config_info is 1,"),
        ('vllm:cache_config_info{block_size="65536",num_gpu_blocks="4294967296"} 1', "tokens of a KV cache"),
        (f'vllm:cache_config_info{{kv_cache_size_tokens="{"9" * 6000}"}} 1', "kv_cache_size_tokens"),
        ("vllm:num_requests_running 1e300", "vllm:num_requests_running is 1e+300"),
        ("vllm:num_requests_waiting -3", "vllm:num_requests_waiting is -3"),
        ("vllm:num_requests_waiting +Inf", "vllm:num_requests_waiting is inf"),
        (f'vllm:num_requests_waiting{{engine="{MOST_RANK_NAME + 1}"}} 1', "a rank is 65536"),
    ],
)
def test_what_cannot_be_true_is_left_out_and_told_and_the_rest_is_used(line: str, words: str) -> None:
    page = read(line, f"{USAGE} 0.5")
    assert words in page.implausible
    assert (page.kv_usage, page.kv_cache_tokens) == (0.5, None)
    assert page.running in (None, 0) and page.waiting in (None, 0, 1)


def test_of_very_many_ranks_a_bounded_number_is_read() -> None:
    page = read(*(f'{USAGE}{{engine="{rank}"}} 0.5' for rank in range(5000)))
    assert len(page.ranks) == MOST_RANKS and "5000 data-parallel ranks" in page.implausible


def test_bytes_of_a_token_that_cannot_be_are_unknown() -> None:
    size, tokens = fetched_blocks(b"vllm:nixl_bytes_transferred_sum 1e300\nvllm:nixl_bytes_transferred_sum 5\n")
    assert (size, tokens) == (5.0, 0)


NUMBERS = st.floats() | st.integers() | st.integers(-(10**30), 10**30) | st.text(max_size=5)
NAMES = st.sampled_from(
    [
        name
        for names in METRIC_NAMES.values()
        for name in (*names.kv_usage, names.running, names.waiting, names.cache_tokens, names.cache_config, *names.steps)
    ]
)
LABELS = st.dictionaries(
    st.sampled_from(["engine", "dp_rank", "block_size", "num_gpu_blocks", "kv_cache_size_tokens", "model_name"]),
    st.integers(-5, 10**20).map(str) | st.text(max_size=5),
    max_size=4,
)
LINES = st.lists(st.tuples(NAMES, LABELS, NUMBERS), max_size=20)


@examples(300)
@given(lines=LINES, engine_type=st.sampled_from(sorted(METRIC_NAMES)))
def test_no_page_gives_a_number_that_json_cannot_carry_or_no_engine_has(
    lines: list[tuple[str, dict[str, str], object]], engine_type: str
) -> None:
    text = "".join(
        f"{name}{{{','.join(f'{key}={chr(34)}{value}{chr(34)}' for key, value in labels.items())}}} {number}\n"
        for name, labels, number in lines
    )
    page = read_page(text.encode("utf-8", "replace"), engine_type, METRIC_NAMES[engine_type].kv_usage[0])
    orjson.dumps(page, option=orjson.OPT_NON_STR_KEYS)
    for told in (page, *page.ranks.values()):
        _is_plausible(told)
    assert len(page.ranks) <= MOST_RANKS and all(0 <= rank <= MOST_RANK_NAME for rank in page.ranks)
    assert all(0 <= value <= 1e18 for value in fetched_blocks(text.encode("utf-8", "replace")))


def _is_plausible(told: EngineFigures) -> None:
    most = len(METRIC_NAMES) * MOST_INTEGER
    assert told.running is None or 0 <= told.running <= 20 * MOST_REQUESTS
    assert told.waiting is None or 0 <= told.waiting <= 20 * MOST_REQUESTS
    assert told.kv_cache_tokens is None or LEAST_CACHE_TOKENS <= told.kv_cache_tokens <= 20 * MOST_CACHE_TOKENS
    assert told.movement is None or all(0 <= count <= most for count in told.movement.counts)


DEEP = b"[" * 20_000 + b"]" * 20_000


@pytest.mark.parametrize("depth", [200, 5000, sys.getrecursionlimit() * 50])
@pytest.mark.parametrize("field", [b"owned_by", b"x", b"root"])
def test_a_deep_list_of_models_is_unreadable_and_no_more(depth: int, field: bytes) -> None:
    answer = b'{"data":[{"id":"m","%b":%b}]}' % (field, b"[" * depth + b"]" * depth)
    with pytest.raises(PageUnreadable, match="nested deeper"):
        read_models(answer)
    assert read_cards(answer) == {}


def test_of_very_many_models_a_bounded_number_is_read() -> None:
    told = read_models(b'{"data":[' + b",".join(b'{"id":"m%d"}' % number for number in range(9000)) + b"]}")
    assert len(told.names) == MOST_MODELS and "9000 models" in told.implausible


def test_a_card_with_a_name_that_no_model_has_is_left_out() -> None:
    long = "x" * (LONGEST_NAME + 1)
    assert read_cards(orjson.dumps({"data": [{"id": long}, {"id": "m"}]})).keys() == {"m"}


def test_a_bound_takes_its_ends_and_no_number_that_is_none() -> None:
    bound = Bound(1, 5, "things")
    assert [bound.holds(value) for value in (0, 1, 5, 6, float("nan"), float("inf"))] == [False, True, True, False, False, False]
    assert bound.words("x", 1e99) == "x is 1e+99, and things are 1 to 5"


@examples(100)
@given(text=st.text(st.characters(exclude_categories=())))
def test_what_is_shown_is_one_short_line_that_json_can_carry(text: str) -> None:
    found = shown(text, 50)
    assert (len(found) <= 50 and found.isprintable()) or not set(found) - set(text) - {"?"}
    assert "\n" not in found and "\x1b" not in found
    orjson.dumps(found)


def test_hosts_are_names_ends_of_names_addresses_and_networks() -> None:
    hosts = Hosts(["a.svc", "*.b.svc", "10.1.2.3", "fd00::/8"])
    allowed = ["a.svc", "A.SVC", "x.b.svc", "10.1.2.3", "[fd00::7]"]
    refused = ["b.svc", "xb.svc", "x.a.svc", "10.1.2.4", "fe80::1", "", "a.svc."]
    assert [hosts.allow(host) for host in allowed + refused] == [True] * len(allowed) + [False] * len(refused)
