import orjson
from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.replay.prompts import BodyWriter, PromptWriter
from fairlead_simulator.traces.rows import TraceRow
from fairlead_testing.examples import examples


def row(length: int, *ids: int) -> TraceRow:
    return TraceRow(timestamp_ms=0, input_length=length, output_length=1, hash_ids=ids)


def test_a_prompt_has_exactly_its_tokens_in_bytes_of_ascii_words() -> None:
    text = PromptWriter(4).prompt(row(1100, 7, 8, 9))
    assert len(text) == 4400
    assert text.isascii()
    assert b'"' not in text
    assert b"\\" not in text
    assert len(set(text.split())) > 400


def test_texts_depend_on_the_id_alone() -> None:
    one, other = PromptWriter(4), PromptWriter(4, cached_blocks=1)
    assert one.prompt(row(1536, 7, 8, 9)) == other.prompt(row(2048, 7, 8, 9, 10))[:6144]
    assert one.prompt(row(512, 9)) == one.prompt(row(1024, 3, 9))[2048:]


@given(st.sets(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=20))
@examples(30)
def test_different_ids_differ_from_their_first_words_on(ids: set[int]) -> None:
    writer = PromptWriter(4)
    assert len({writer.block(number, 0)[:16] for number in ids}) == len(ids)


def test_a_repetition_has_fresh_texts_but_keeps_what_everyone_shares() -> None:
    writer = PromptWriter(2, shared=frozenset({0}))
    first, second = writer.prompt(row(1024, 0, 5)), writer.prompt(row(1024, 0, 5), salt=1)
    assert first[:1024] == second[:1024]
    assert first[1024:] != second[1024:]


def test_the_body_is_the_json_a_client_would_send() -> None:
    body = BodyWriter('a "model"').body(b"some words ", 9)
    assert orjson.loads(body) == {
        "model": 'a "model"',
        "messages": [{"role": "user", "content": "some words "}],
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
