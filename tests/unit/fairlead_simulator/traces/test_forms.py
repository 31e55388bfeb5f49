"""Traces in other projects' formats: detected by their content, converted, and reported when given unconverted."""

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.errors import TraceInvalid
from fairlead_simulator.traces.blocks import BlockNames
from fairlead_simulator.traces.conversions import TraceChanges, convert, read_form, write_form
from fairlead_simulator.traces.reading import Notes
from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow, read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
QWEN = {"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 521, "output_length": 132, "type": "text", "turn": 1}
SENT = {
    "metadata": {
        "x_correlation_id": "one",
        "conversation_id": "c",
        "turn_index": 0,
        "request_start_ns": 1759813207532900363,
        "request_end_ns": 1759813207838764604,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    },
    "metrics": {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "output_sequence_length": {"value": 9, "unit": "tokens"},
        "inter_chunk_latency": {"value": [4.8, 5.3], "unit": "ms"},
    },
    "error": None,
}


def jsonl(*rows: dict[str, Any]) -> bytes:
    return b"\n".join(map(orjson.dumps, rows)) + b"\n"


def qwen(chat: int, parent: int, at: float, ids: Iterable[int], length: int, turn: int = 1) -> dict[str, Any]:
    return QWEN | {"chat_id": chat, "parent_chat_id": parent, "timestamp": at, "hash_ids": [*ids], "input_length": length, "turn": turn}


def report(*requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"requests": {"successful": [*requests], "errored": [], "incomplete": [], "total": None}, **more}


def asked(at: float, prompt: str, tokens: int) -> dict[str, Any]:
    return {"type_": "generative_text_response", "prompt": prompt, "prompt_tokens": tokens, "output_tokens": 16, "start_time": at}


class Converted:
    """A file as `traces convert` reads it."""

    def __init__(self, folder: Path, content: bytes | str, form: str | None = None, **options: Any) -> None:
        path = folder / "file"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        notes = Notes()
        rate = options.pop("rate", None)
        read = read_form(path, form, has_rate=rate is not None, notes=notes, **options)
        self.rows = convert(read, TraceChanges(requests_per_second=rate))
        self.notes = notes.lines()

    @property
    def facts(self) -> list[tuple[float, int, int]]:
        return [(row.timestamp_ms, row.input_length, row.output_length) for row in self.rows]

    def common(self, one: int, other: int) -> int:
        """Return the number of blocks with which two rows begin alike."""
        pairs = zip(self.rows[one].hash_ids, self.rows[other].hash_ids, strict=False)
        return next(
            (place for place, (left, right) in enumerate(pairs) if left != right), min(len(self.rows[n].hash_ids) for n in (one, other))
        )


EXAMPLES = {
    "azure": (AZURE + "2023-11-16 18:15:46.6805900,374,44\n").encode(),
    "burstgpt": (BURST + "5,,1,ChatGPT,472,18,490,API log\n").encode(),
    "csv": b"timestamp,input_length,output_length\n0,512,1\n",
    "alibaba": jsonl(qwen(1, -1, 0.0, range(33), 521)),
    "aiperf": jsonl({"timestamp": 0, "input_length": 655, "output_length": 52}),
    "guidellm": jsonl({"metadata": {"version": 1}, "benchmarks": [report(asked(1.0, "Why?", 3))]}),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", EXAMPLES)
def test_a_file_of_another_form_is_converted_as_what_it_is_and_else_told_the_command(tmp_path: Path, form: str, packed: bool) -> None:
    content = gzip.compress(b"\xef\xbb\xbf" + EXAMPLES[form]) if packed else EXAMPLES[form]
    assert len(Converted(tmp_path, content).rows) == 1
    with pytest.raises(TraceInvalid) as caught:
        list(read_trace(tmp_path / "file"))
    assert str(caught.value).endswith(f"convert it: fairlead traces convert --from {form} {tmp_path / 'file'} --out trace.jsonl")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_azures_times_are_read_in_both_their_forms(tmp_path: Path, separator: str) -> None:
    days = "2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\r\n"
    found = Converted(tmp_path, (AZURE + days).replace(",", separator))
    assert found.facts == [(0, 374, 44), (4314.579, 396, 109)]
    assert found.notes[1] == "times are counted from the first row, at 2023-11-16 18:15:46.6805900"
    later = "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 02:00:00+02:00,2399,6\n2024-05-09 19:00:01-0500,0,0\n"
    found = Converted(tmp_path, AZURE + later, sort=True)
    assert found.facts == [(0, 2399, 6), (9.93, 2162, 5)]
    assert "1 request left out that have no prompt, such as failed requests" in found.notes


def test_columns_without_a_place_are_told(tmp_path: Path) -> None:
    found = Converted(tmp_path, "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 01:00:00,2,10,3\n")
    assert found.notes[-1] == "fields without a place in Mooncake's form, left out: NumImages"


def test_burstgpts_sessions_are_kept_where_it_has_them(tmp_path: Path) -> None:
    lines = (
        "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n19440161.0,,2,ChatGPT,36,29,65,API log\n19440162,x,2,GPT-4,0,0,0,x\n"
    )
    found = Converted(tmp_path, BURST + lines)
    assert [(row.timestamp_ms, row.session, len(row.hash_ids)) for row in found.rows] == [(0, "1722ac82", 2), (51_000, None, 1)]
    assert "fields without a place in Mooncake's form, left out: Elapsed time, Model, Log Type" in found.notes


def test_alibabas_chats_that_follow_one_another_are_a_session_with_blocks_of_512(tmp_path: Path) -> None:
    rows = [
        qwen(1, -1, 0.5, range(33), 521),
        qwen(2, 1, 9.0, [*range(40), 7], 650, 2),
        qwen(3, 2, 20.0, [*range(40), 8], 650, 3),
        qwen(4, 77, 21.0, [*range(32)], 520),
        qwen(5, -1, 22.0, [99, *range(1, 33)], 521),
    ]
    found = Converted(tmp_path, jsonl(*rows))
    assert [row.session for row in found.rows] == ["1", "1", "1", "77", "5"]
    assert found.facts[1] == (8500, 650, 132)
    assert {len(row.hash_ids) for row in found.rows} == {2}
    assert (found.common(0, 1), found.common(1, 2), found.common(0, 3), found.common(0, 4)) == (1, 1, 1, 0)
    assert found.notes == ["fields without a place in Mooncake's form, left out: type, turn"]


def test_ids_of_blocks_of_any_size_can_be_given(tmp_path: Path) -> None:
    rows = [{"timestamp": 0, "input_length": 1000, "output_length": 1, "hash_ids": [1, 2, 3, end]} for end in (4, 5)]
    with pytest.raises(TraceInvalid, match=r"needs 2 .one per 512 tokens.; blocks of 256 tokens are converted by .* --block-size 256$"):
        Converted(tmp_path, jsonl(*rows))
    found = Converted(tmp_path, jsonl(*rows), block_tokens=256)
    assert [row.hash_ids for row in found.rows] == [(0, 1), (0, 2)]


@given(st.integers(1, 2100), st.lists(st.integers(1, 5000), min_size=2, max_size=2), st.integers(0, 5000))
def test_what_begins_alike_is_found_alike_whatever_the_size_of_a_block(size: int, lengths: list[int], alike: int) -> None:
    """The common beginning is never overestimated and lacks less than a block of either size, or nothing if one divides
    the other.
    """
    alike = min(alike, *lengths)
    names = BlockNames()
    prompts = [tuple([("both", *range(place, min(place + size, length))) if place + size <= alike else (number, place, length)
        for place in range(0, length, size)]) for number, length in enumerate(lengths)]  # fmt: skip
    codes: dict[object, int] = {}
    made = [
        names.of_ids([codes.setdefault(part, len(codes)) for part in one], length, size)
        for one, length in zip(prompts, lengths, strict=True)
    ]
    common = next((place for place, (one, other) in enumerate(zip(*made, strict=False)) if one != other), min(map(len, made)))
    whole = alike // size * size
    assert [len(one) for one in made] == [-(-length // BLOCK_TOKENS) for length in lengths]
    assert common * BLOCK_TOKENS <= whole + (BLOCK_TOKENS - 1 if whole == min(lengths) else 0)
    assert common * BLOCK_TOKENS > whole - BLOCK_TOKENS - (size if size % BLOCK_TOKENS and BLOCK_TOKENS % size else 0)


def test_aiperfs_ids_name_what_a_block_holds(tmp_path: Path) -> None:
    """The example of AIPerf's documentation: 1 stands first and later, 4 comes after 3 and after 1."""
    rows = [(0, 1200, [0, 1, 2]), (105, 1800, [0, 3, 4, 5]), (274, 1300, [1, 4, 6])]
    content = jsonl(*({"timestamp": at, "input_length": length, "output_length": 52, "hash_ids": ids} for at, length, ids in rows))
    with pytest.raises(TraceInvalid, match=r"3: hash_ids: id 1 comes first here, and after 0 elsewhere; .* --from aiperf"):
        Converted(tmp_path, content)
    found = Converted(tmp_path, content, "aiperf")
    assert (found.common(0, 1), found.common(0, 2), found.common(1, 2)) == (1, 0, 0)


def test_aiperfs_texts_and_messages_have_in_common_what_they_begin_with(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be brief. " * 400}
    rows: list[dict[str, Any]] = [
        {"text_input": "x" * 3000 + "a" * 2000, "output_length": 4, "timestamp": 0},
        {"text_input": "x" * 3000 + "b" * 2000, "output_length": 4, "timestamp": 1},
        {"messages": [system, {"role": "user", "content": "one"}], "output_length": 4, "timestamp": 2},
        {"messages": [system, {"role": "user", "content": "two"}], "output_length": 4, "timestamp": 3, "tools": []},
        {"payload": {"messages": [system], "model": "m"}, "output_length": 4, "timestamp": 4},
    ]
    found = Converted(tmp_path, jsonl(*rows))
    assert found.facts[0] == (0, 1250, 4)
    assert (found.common(0, 1), found.common(2, 3), found.common(0, 2)) == (1, 1, 0)
    assert found.notes == [
        "prompts given as text were counted as one token per 4 bytes",
        "fields without a place in Mooncake's form, left out: tools",
    ]


def test_later_turns_for_aiperf_come_after_all_before(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 100},
        {"session_id": "b", "timestamp": 1, "input_length": 10, "output_length": 5},
        {"session_id": "a", "delay": 50, "input_length": 400, "output_length": 1},
    ]
    found = Converted(tmp_path, jsonl(*rows))
    assert found.facts == [(0, 600, 100), (1, 10, 5), (2050, 1100, 1)]
    assert found.rows[2].pause_ms == 50
    assert found.common(0, 2) == 1


def test_rows_for_aiperf_without_times_need_a_rate(tmp_path: Path) -> None:
    content = jsonl(*({"input_length": 10, "output_length": 4} for _ in range(3)))
    with pytest.raises(TraceInvalid, match=r":1: timestamp: is missing; give --rate to send such rows at equal distances$"):
        Converted(tmp_path, content)
    assert Converted(tmp_path, content, rate=4.0).facts == [(0, 10, 4), (250, 10, 4), (500, 10, 4)]


def test_aiperfs_records_are_put_in_order_with_the_pauses_of_sessions(tmp_path: Path) -> None:
    def sent(start: int, end: int, **more: Any) -> dict[str, Any]:
        return SENT | {"metadata": SENT["metadata"] | {"request_start_ns": start, "request_end_ns": end} | more}  # type: ignore[operator] # dicts

    begun = 1_759_813_207_000_000_000
    rows = [
        sent(begun + 900_000_000, begun + 950_000_000),
        sent(begun, begun + 500_000_000),
        sent(begun + 1, begun + 2, x_correlation_id="two", was_cancelled=True),
        sent(begun + 1, begun + 2, benchmark_phase="warmup"),
    ]
    found = Converted(tmp_path, jsonl(*rows))
    assert [(row.timestamp_ms, row.session, row.pause_ms) for row in found.rows] == [(0, "one", None), (900, "one", 400)]
    assert found.facts[0] == (0, 550, 9)
    assert "1 request left out that failed or were cancelled" in found.notes
    assert "1 request left out that were sent to warm up" in found.notes


def test_guidellms_reports_are_read_in_all_their_forms(tmp_path: Path) -> None:
    old = report(asked(100.5, "x" * 6000, 1500), asked(100.0, "x" * 6000 + "y" * 2000, 2000), request_totals={"successful": 5})
    later = {
        "request_args": orjson.dumps({"body": {"messages": [{"role": "user", "content": "z" * 9000}]}}).decode(),
        "info": {"conversation_id": "talk"},
        "prompt_tokens": 2250,
        "output_tokens": 7,
        "request_start_time": 101.0,
    }
    new = report(later, later | {"request_start_time": 102.0, "request_args": None}) | {
        "requests": {"successful": [later], "errored": [later]}
    }
    for content in (orjson.dumps({"benchmarks": [old, new]}), orjson.dumps({"benchmarks": [old, new]}, option=orjson.OPT_INDENT_2)):
        found = Converted(tmp_path, content)
        assert found.facts == [(0, 2000, 16), (500, 1500, 16), (1000, 2250, 7)]
        assert [row.session for row in found.rows] == [None, None, "talk"]
        assert (found.common(0, 1), found.common(0, 2)) == (2, 0)
        assert found.notes == [
            "the file holds 2 benchmarks; each request keeps its recorded time",
            "2 of the 5 requests of a benchmark are in the file, as guidellm drew a sample",
            "1 request left out that failed or did not end",
        ]


def test_prompts_for_guidellm_need_a_rate(tmp_path: Path) -> None:
    content = jsonl(*({"prompt": f"Question {number}: " + "?" * 100, "output_tokens_count": 16} for number in range(3)))
    with pytest.raises(TraceInvalid, match=r":1: timestamp: is missing; give --rate"):
        Converted(tmp_path, content)
    assert Converted(tmp_path, content, rate=1.0).facts == [(1000 * number, 28, 16) for number in range(3)]


def test_rows_are_sorted_when_asked_for(tmp_path: Path) -> None:
    content = jsonl(*({"timestamp": at, "input_length": 5, "output_length": 1, "hash_ids": [at]} for at in (9, 4)))
    with pytest.raises(TraceInvalid, match=r":2: timestamp: 4 is before the previous row's 9; sort the rows by time"):
        Converted(tmp_path, content)
    assert [row.hash_ids for row in Converted(tmp_path, content, sort=True).rows] == [(4,), (9,)]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[\n  {}\n]", ": is a JSON list; write one JSON object per line"),
        (
            b'{\n  "data": [{\n  "session_id": "a", "payloads": [{}]}]\n}',
            ": is aiperf's inputs.json, which has no times of requests",
        ),
        (jsonl({"request_count": 5, "input_config": {}}), ": is aiperf's summary of a run, which lists no requests; convert the prof"),
        (b"timestamp,timestamp,input_length,output_length\n", ":1: timestamp: is the name of two columns"),
        (AZURE.encode() + b"16.11.2023,1,1\n", ":2: TIMESTAMP: '16.11.2023' must be a time since 1970, as 2023-11-16 18:15:46.680590"),
        (AZURE.encode() + b"2023-02-30 00:00:00,1,1\n", ":2: TIMESTAMP: '2023-02-30 00:00:00' must be a time"),
        (AZURE.encode() + b"1969-12-31 00:00:00,1,1\n", ":2: TIMESTAMP: '1969-12-31 00:00:00' must be a time since 1970"),
        (AZURE.encode() + b"2023-11-16 18:15:46,nan,1\n", ":2: ContextTokens: 'nan' must be a whole number of tokens"),
        (AZURE.encode() + b"2023-11-16 18:15:46,1e400,1\n", ":2: ContextTokens: inf must be a whole number of tokens"),
        (AZURE.encode() + b"2023-11-16 18:15:46,1\n", ":2: GeneratedTokens: is missing; write it in every row"),
        (AZURE.encode() + b"2023-11-16 18:15:46,1,1,5\n", ":2: holds 4 cells, and the first line names 3 columns"),
        (AZURE.encode() + b'2023-11-16 18:15:46,1,"1\n', ":2: is not CSV; close its quotes, and end its lines as usual"),
        (AZURE.encode() + b"\xff\n", ":2: is not valid UTF-8; save the file as UTF-8"),
        (BURST.encode() + b"-5,,1,m,1,1,2,x\n", ":2: Timestamp: -5 must be a number of seconds, from 0 to 1e+12"),
        (
            jsonl(qwen(1, -1, 0, range(5), 521)),
            ":1: hash_ids: holds 5 ids; input_length 521 needs 33 (one per 16 tokens); give --block-size",
        ),
        (jsonl(qwen(1, -1, 1e13, range(33), 521)), ":1: timestamp: 10000000000000 must be a number of seconds, from 0 to 1e+12"),
        (jsonl({"text_input": "a", "timestamp": 0}), ":1: output_length: is missing; a request needs it"),
        (jsonl({"text_input": 5, "output_length": 1, "timestamp": 0}), ":1: text_input: 5 must be text"),
        (jsonl({"messages": [{}], "message_mode": "delta", "timestamp": 0}), ":1: message_mode: 'delta' cannot be converted"),
        (jsonl({"payload": {"model": "m"}, "timestamp": 0}), ":1: payload: {'model': 'm'} holds no messages and no prompt"),
        (jsonl(SENT | {"metrics": {}}), ":1: metrics.input_sequence_length: None must be a JSON object"),
        (jsonl({"benchmarks": 5}), ": benchmarks: 5 must be a list of JSON objects"),
        (jsonl({"benchmarks": []}), ": holds no rows; expected one request per line"),
        (jsonl({"benchmarks": [report({"prompt": "a"})]}), ": benchmarks[0].requests.successful[0].start_time: is missing"),
        (b'{\n "benchmarks": [', ": is not JSON"),
    ],
)
def test_what_cannot_be_converted_is_told_with_line_field_and_value(tmp_path: Path, content: bytes, told: str) -> None:
    with pytest.raises(TraceInvalid) as caught:
        Converted(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path / 'file'}{told}")
    assert "\n" not in str(caught.value)


def test_times_and_pauses_are_written_to_csv_without_loss(tmp_path: Path) -> None:
    rows = [TraceRow(timestamp_ms=1759813207532.125, input_length=1, output_length=1, hash_ids=(1,), pause_ms=1234567.891)]
    with (tmp_path / "out.csv").open("w") as file:
        assert write_form(rows, file, "csv") == 1
    assert list(read_form(tmp_path / "out.csv", "csv")) == rows
