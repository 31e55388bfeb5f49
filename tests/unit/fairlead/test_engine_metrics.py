"""An engine's metrics page for people: its own names in groups, histograms as three figures, and everything bounded."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlead.engine_metrics
from fairlead.engine_metrics import GROUPS, LONGEST_HELP, MOST_FAMILIES, MOST_LINES, MOST_SAMPLES, MetricSample, group_of, read_metrics
from fairlead_testing.examples import examples
from fairlead_testing.fakes.public_data.engine_pages import PAGE
from fairlead_testing.fakes.public_data.loads import HOSTILE
from fairlead_testing.steps import assert_linear

NAME = st.from_regex(r"[a-z:_]{1,12}(_total|_bucket|_sum|_count)?", fullmatch=True)
LINE = st.one_of(
    st.builds("# TYPE {} {}".format, NAME, st.sampled_from(["counter", "gauge", "histogram", "summary", "unheard"])),
    st.builds('{}{{le="{}",a="{}"}} {}'.format, NAME, st.floats(), st.text(max_size=5), st.floats()),
    st.builds("{} {}".format, NAME, st.floats()),
    st.text(max_size=40),
)


def test_a_page_of_vllm_is_read_under_its_own_names_in_groups() -> None:
    page = read_metrics(PAGE.encode())
    found = {one.name: one for one in page.families}
    assert page.unreadable == 1
    assert [one.group for one in page.families] == sorted((one.group for one in page.families), key=GROUPS.index)
    assert "vllm:prefix_cache_queries_created" not in found, "when a counter was made says nothing"
    usage = found["vllm:kv_cache_usage_perc"]
    assert (usage.kind, usage.group, [one.value for one in usage.samples]) == ("gauge", "KV cache", [0.8125, 0.8125])
    assert usage.told.startswith("KV-cache usage") and "Used share" in usage.meaning
    first = found["vllm:time_to_first_token_seconds"]
    labels = {"engine": "0", "model_name": "Qwen/Qwen3-32B"}
    assert first.samples[0] == MetricSample(labels=labels, value=900.0, mean=0.5, p50=0.25, p95=2.5)
    hostile = found["vllm:lora_requests_info"].samples[0]
    assert hostile == MetricSample(labels={"running_lora_adapters": HOSTILE}, value=None), "not a number"


def test_a_search_looks_into_names_sentences_and_labels() -> None:
    assert {one.name for one in read_metrics(PAGE.encode(), "Prefix_Cache").families} == {
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_queries_created",
    }
    assert [one.name for one in read_metrics(PAGE.encode(), "cpython").families] == ["python_info"]
    assert read_metrics(PAGE.encode(), "nothing of it").families == []


def test_a_histogram_that_cannot_be_true_has_no_percentiles() -> None:
    falling = b'# TYPE a histogram\na_bucket{le="1"} 9\na_bucket{le="2"} 3\na_count 9\na_sum 9\n'
    (sample,) = read_metrics(falling).families[0].samples
    assert (sample.value, sample.mean, sample.p50) == (9.0, 1.0, None)
    beyond = b'# TYPE a histogram\na_bucket{le="1"} 0\na_bucket{le="+Inf"} 9\na_count 9\n'
    (sample,) = read_metrics(beyond).families[0].samples
    assert (sample.mean, sample.p50, sample.p95) == (None, None, None), "beyond the last end"


def test_a_page_of_very_many_ranks_and_metrics_is_bounded() -> None:
    ranks = "".join(f'vllm:num_requests_running{{engine="{rank}"}} 1\n' for rank in range(3000))
    others = "".join(f"m{number} 1\n" for number in range(3000))
    page = read_metrics((ranks + others + "# HELP m1 " + "x" * 2000).encode())
    assert (len(page.families), page.families_in_all) == (MOST_FAMILIES, 3001)
    (running,) = (one for one in page.families if one.name.endswith("running"))
    assert (len(running.samples), running.samples_in_all) == (MOST_SAMPLES, 3000)
    assert max(len(one.told) for one in page.families) <= LONGEST_HELP


def test_of_very_many_lines_the_first_are_read_and_the_others_counted() -> None:
    page = read_metrics("".join(f"m{number} 1\n\n" for number in range(MOST_LINES + 7)).encode())
    assert (page.families_in_all, page.unreadable) == (MOST_LINES, 7)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("vllm:nixl_bytes_transferred", "Moving caches"),
        ("vllm:spec_decode_num_drafts", "Speculative decoding"),
        ("sglang:num_running_reqs", "Requests"),
        ("sglang:token_usage", "KV cache"),
        ("vllm:e2e_request_latency_seconds", "Latency"),
        ("http_requests", "Server"),
        ("process_open_fds", "Process"),
        ("anything", "Others"),
    ],
)
def test_a_metric_stands_in_its_group(name: str, group: str) -> None:
    assert group_of(name) == group


@given(st.lists(LINE, max_size=30), st.text(max_size=4))
@examples(200)
def test_whatever_a_page_says_what_is_shown_can_be_sent_and_is_a_number(lines: list[str], search: str) -> None:
    for page in (read_metrics("\n".join(lines).encode(errors="replace")), read_metrics("\n".join(lines).encode(errors="replace"), search)):
        assert page.families_in_all >= len(page.families)
        for family in page.families:
            assert family.group in GROUPS and family.samples
            for sample in family.samples:
                numbers = (sample.value, sample.mean, sample.p50, sample.p95)
                assert all(one is None or math.isfinite(one) for one in numbers)
                assert all("\n" not in text and len(text) <= 100 for text in sample.labels.values())


@pytest.mark.parametrize(
    "piece", [b'a{b="', b"a{}", b"}", b'a{b="c",', b"\n", b"a 1\n", b'a_bucket{le="1"} 1\n', b"# TYPE a histogram\n", b"\\", b'"']
)
def test_the_work_on_a_page_grows_with_its_bytes_only(piece: bytes) -> None:
    assert_linear(read_metrics, lambda size: b"# TYPE a histogram\n" + piece * (size // len(piece)), 20_000, fairlead.engine_metrics)
