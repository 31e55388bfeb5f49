"""The simulator's form as a request, and uploaded traces."""

import gzip
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_client.resources.simulations import (
    EngineModel,
    SimulatedPolicy,
    Simulation,
    SimulationRequest,
    SimulationState,
    TraceRequest,
)
from fairlead_web.forms.simulation_forms import again, asked, form_of, typed
from fairlead_web.forms.uploaded_traces import MOST_NAMED, LeftOut, heard, read_upload, told

SPEC = {"routing": {"policy": "dualmap", "parameters": {"slo_fraction": 0.5}}}
DUALMAP = SimulatedPolicy(policy="dualmap", parameters={"slo_fraction": 0.5})
NOW = datetime(2026, 11, 23, 5, 0, 0, 123456, tzinfo=UTC)


def test_the_present_policy_comes_first_and_others_are_ticked_or_written() -> None:
    given = {"lines": "ear: {cooldown_seconds: 60}\n\nfairlead\nlmetric", "rates": "1, 1.5", "seed": "7", "replicas": "32"}
    form = typed(form_of(SPEC), given, ["now", "fairlead", "none-such"])
    assert asked(form, None) == SimulationRequest(
        policies=[
            DUALMAP,
            SimulatedPolicy(policy="fairlead"),
            SimulatedPolicy(policy="ear", parameters={"cooldown_seconds": 60}),
            SimulatedPolicy(policy="lmetric"),
        ],
        rates=[1.0, 1.5],
        seed=7,
        replicas=32,
    )


@pytest.mark.parametrize(
    ("field", "text"),
    [("rates", "fast"), ("seed", "-1"), ("seed", "²"), ("replicas", "1e3"), ("engine", "tpu"), ("lines", "ear: [1"), ("lines", "ear: 3")],
)
def test_text_that_cannot_be_sent_is_told_with_its_field(field: str, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        asked(typed(form_of(SPEC), {field: text}, ["now"]), None)
    assert refused.value.field == field


def test_without_any_policy_there_is_nothing_to_simulate() -> None:
    with pytest.raises(InvalidInput, match="tick one"):
        asked(typed(form_of(SPEC), {}, []), None)


def test_a_simulation_fills_the_form_so_that_the_same_is_asked_again() -> None:
    policies = [SimulatedPolicy(policy="fairlead"), DUALMAP]
    found = Simulation(
        id="s",
        pool="default/chat",
        state=SimulationState.DONE,
        created_at=NOW,
        created_by="ada",
        policies=policies,
        rates=[0.5, 2.0],
        seed=11,
        done=1,
        total=1,
        start=NOW.replace(hour=4),
        end=NOW,
        replicas=32,
        engine=EngineModel.VLLM_8B,
    )
    request = asked(again(form_of(SPEC), found), None)
    assert (request.policies, request.rates, request.seed, request.replicas) == (policies, [0.5, 2.0], 11, 32)
    assert (datetime.fromisoformat(request.start), datetime.fromisoformat(request.end)) == (found.start, found.end)
    assert request.engine is EngineModel.VLLM_8B
    assert asked(again(form_of(SPEC), replace(found, start=None, end=None)), []).trace == []


def row(at: float, tokens: int = 600, **changes: object) -> bytes:
    one = {"timestamp": at, "input_length": tokens, "output_length": 5, "hash_ids": list(range(-(-tokens // 512))), **changes}
    return msgspec.json.encode(one)


def test_a_bad_row_costs_that_row_and_is_named_by_its_line() -> None:
    lines = [row(0), b"{", row(10), row(5), b"", row(11, 0), row(12, hash_ids=[1]), row(13, input_length="x"), row(20)]
    rows, left_out = read_upload(b"\r\n".join(lines))
    assert [one.timestamp for one in rows] == [0, 10, 20]
    assert [(one.line, one.cause) for one in left_out] == [(2, "json"), (4, "time"), (6, "lengths"), (7, "blocks"), (8, "json")]
    assert left_out[1].words == "line 4: its timestamp is before the row above"
    assert heard(told(left_out)) == (left_out, 5)


def test_a_file_without_two_usable_rows_is_refused_with_its_first_fault() -> None:
    with pytest.raises(InvalidInput, match="line 1: not a row in Mooncake's format"):
        read_upload(b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + row(1))


def test_an_upload_may_be_packed_and_begin_with_a_byte_order_mark() -> None:
    plain = b"\n".join([row(0), row(10)])
    for content in (gzip.compress(plain), b"\xef\xbb\xbf" + plain, plain.decode().encode("utf-16")):
        assert read_upload(content) == read_upload(plain)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"PK\x03\x04 not a trace", "the file is a ZIP archive; unpack it first"),
        (gzip.compress(bytes(2**20)), "the file holds zero bytes"),
        ((row(0) + b" " * 40_000 + b"\n") * 840, "the file holds more than 32 MiB; give a part of it"),
    ],
    ids=["zip", "zeros", "large"],
)
def test_an_upload_that_is_no_text_or_too_large_is_refused_with_what_to_do(content: bytes, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_upload(content)


def test_an_address_names_the_first_rows_and_counts_all() -> None:
    many = [LeftOut(line=line, cause="json") for line in range(1, 3000)]
    assert heard(told(many)) == (many[:MOST_NAMED], 2999)


@given(st.text(max_size=40))
def test_an_address_that_nobody_here_wrote_says_nothing_of_its_own(text: str) -> None:
    named, total = heard(text)
    assert total >= 0
    assert all(one.words.startswith(f"line {one.line}: ") for one in named)


@given(st.binary(max_size=300))
def test_no_upload_raises_anything_but_what_can_be_told(content: bytes) -> None:
    try:
        rows, _ = read_upload(content)
    except InvalidInput:
        return
    assert all(isinstance(one, TraceRequest) for one in rows)
