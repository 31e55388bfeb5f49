"""Files of traces by strangers: the work is linear in their bytes, and every fault is one short line."""

import contextlib
import csv
import io
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.errors import TraceInvalid
from fairlead_simulator.traces import blocks, conversions, detection, fields, reading, rows
from fairlead_simulator.traces.conversions import _reader
from fairlead_simulator.traces.detection import FORMS, form_of
from fairlead_simulator.traces.fields import LONGEST_TOKENS
from fairlead_simulator.traces.forms import aiperf, alibaba, csv_files, guidellm
from fairlead_simulator.traces.reading import Notes, Reading
from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.traces.sources import TraceFile
from fairlead_testing.examples import examples
from fairlead_testing.steps import assert_linear

MODULES = (aiperf, alibaba, csv_files, guidellm, conversions, detection, fields, rows, blocks, reading)
LONGEST_LINE = 1000
"""The most characters of a message or note."""


def read(content: bytes, form: str | None, notes: Notes | None = None) -> list[TraceRow]:
    """Return the rows of a file with this content."""
    lines = ((number, bytes(line)) for number, line in zip(count(1), io.BytesIO(content), strict=False))
    source = TraceFile("trace", ((number, line) for number, line in lines if not line.isspace()))
    known = form or form_of(source.begin) or "jsonl"
    made = Reading(block_tokens=FORMS[known].block_tokens, has_rate=True, notes=notes or Notes())
    return [row for _, row in _reader(known)(source, made)]


@contextlib.contextmanager
def refused_in_a_line() -> Iterator[None]:
    try:
        yield
    except TraceInvalid as error:
        words = str(error)
        assert "\n" not in words
        assert len(words) < LONGEST_LINE


def line(**document: Any) -> bytes:
    return orjson.dumps(document) + b"\n"


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


ROW = {"timestamp": 1, "input_length": 600, "output_length": 3}
SENT = {"metadata": {"request_start_ns": 1, "request_end_ns": 2}, "metrics": {"input_sequence_length": {"value": 9}}}
DEEP = b'{"timestamp":1,"input_length":600,"output_length":3,"hash_ids":%s}\n'
Shape = Callable[[int], bytes]


def of_lines(piece: bytes, before: bytes = b"") -> Shape:
    return lambda size: before + piece * (size // len(piece))


def numbered(make: Callable[[int], bytes], before: bytes = b"") -> Shape:
    return lambda size: before + b"".join(map(make, range(size // len(make(1_000)))))


SHAPES: dict[str, tuple[str, Shape]] = {
    "rows": ("jsonl", numbered(lambda n: line(**ROW, hash_ids=[n, n + 1_000_000]))),
    "one row of many ids": (
        "jsonl",
        lambda size: line(timestamp=1, input_length=512 * (size // 6), output_length=1, hash_ids=[*range(size // 6)]),
    ),
    "rows with fields that nobody knows": ("jsonl", numbered(lambda n: line(**ROW, hash_ids=[n, n + 1_000_000], **{f"f{n}": 1}))),
    "one row of many fields": ("jsonl", lambda size: line(**{f"f{n:07}": n for n in range(size // 20)})),
    "lines of nothing": ("jsonl", of_lines(b"{}\n")),
    "digits": ("jsonl", of_lines(b"9")),
    "rows of CSV": (
        "csv",
        numbered(lambda n: b"%d,600,3,%d %d\n" % (n, n, n + 1_000_000), b"timestamp,input_length,output_length,hash_ids\n"),
    ),
    "many columns": ("csv", numbered(lambda n: b"c%06d," % n, b"timestamp,input_length,output_length,")),
    "many ids in a cell": ("csv", lambda size: b"timestamp,input_length,output_length,hash_ids\n1,600,3," + b"1 " * (size // 2) + b"\n"),
    "quotes": ("csv", of_lines(b'"', b"timestamp,input_length,output_length\n")),
    "times": ("azure", of_lines(b"2023-11-16 18:15:46.680590,9,9\n", b"TIMESTAMP,ContextTokens,GeneratedTokens\n")),
    "chats that follow each other": (
        "alibaba",
        numbered(lambda n: line(**ROW, hash_ids=[n] * 38, chat_id=n, parent_chat_id=n - 1)),
    ),
    "additions to one session": ("aiperf", of_lines(line(**{**ROW, "input_length": 1}, session_id="a"))),
    "texts": ("aiperf", of_lines(line(timestamp=1, text_input="word " * 20, output_length=1))),
    "one long text": ("aiperf", lambda size: line(timestamp=1, text_input="x" * size, output_length=1)),
    "records": ("aiperf", of_lines(line(**SENT))),
    "prompts": ("guidellm", of_lines(line(prompt="word " * 20, output_tokens_count=1))),
    "a report of many lines": ("guidellm", of_lines(b"1,\n", b'{\n"benchmarks": [')),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_work_is_linear(name: str) -> None:
    form, make = SHAPES[name]

    def parse(content: bytes) -> None:
        with refused_in_a_line():
            read(content, form)

    assert_linear(parse, make, 20_000, *MODULES)


REFUSED = {
    "ids that nest deeply": ("jsonl", DEEP % nested(1000)),
    "ids that nest too deeply for JSON": ("jsonl", DEEP % nested(100_000)),
    "a prompt that nests deeply": ("aiperf", b'{"text_input":%s,"output_length":1,"timestamp":1}\n' % nested(1000)),
    "a session that nests deeply": (
        "jsonl",
        b'{"timestamp":1,"input_length":1,"output_length":1,"hash_ids":[1],"session_id":%s}\n' % nested(1000),
    ),
    "a value of a megabyte": ("jsonl", line(**{**ROW, "timestamp": "9" * 1_000_000}, hash_ids=[])),
    "a list of a million": ("jsonl", line(**ROW, hash_ids=["x"] * 300_000)),
    "ids that break the rule with a long number": ("jsonl", line(**ROW, hash_ids=[2**63, 1]) + line(**ROW, hash_ids=[1, 2**63])),
    "more columns than anybody has": (
        "csv",
        b"timestamp,input_length,output_length," + b",".join(b"c%d" % n for n in range(50_000)) + b"\n1,1,1\n",
    ),
    "a column's name of a megabyte, twice": (
        "csv",
        b"timestamp,input_length,output_length," + b"x" * 1_000_000 + b"," + b"x" * 1_000_000 + b"\n",
    ),
    "a session longer than any context": ("aiperf", line(timestamp=1, input_length=LONGEST_TOKENS, output_length=1, session_id="a") * 3),
    "a zone that is none": ("azure", b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46+99:99,1,1\n"),
    "a day that is none": ("azure", b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-31 18:15:46,1,1\n"),
    "lines within a name": ("csv", b"timestamp,input_length,output_length,a\x0bb,a\x0bb\n"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_one_short_line(name: str) -> None:
    form, content = REFUSED[name]
    with pytest.raises(TraceInvalid) as caught:
        read(content, form)
    assert len(str(caught.value)) < LONGEST_LINE
    assert str(caught.value).isprintable()


def test_names_of_fields_that_are_left_out_are_a_short_note_however_many_there_are() -> None:
    notes = Notes()
    read(line(**{**ROW, **{f"field-{n}": 1 for n in range(20_000)}}, hash_ids=[1, 2]), "jsonl", notes)
    assert all(len(note) < LONGEST_LINE for note in notes.lines())
    assert any("field-0" in note and "more" in note for note in notes.lines())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = ("timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay", "metadata", "metrics", "benchmarks", "requests",
         "text_input", "messages", "payload", "prompt", "chat_id", "parent_chat_id", "prompt_tokens_count", "successful")  # fmt: skip
USUAL = st.sampled_from([0, 1, 512, 600, [1], [1, 2], {"value": 9}, "word", [{"role": "user"}]])
DOCUMENTS = st.dictionaries(st.sampled_from(NAMES), USUAL | JSON, max_size=8).map(orjson.dumps)
CELLS = st.lists(
    st.sampled_from(["1", "600", "1 2", "", '"', "-1", "1e999", "9" * 50, "x", "2023-11-16 18:15:46", "\x00", "\u2028"]), max_size=7
)
HEADS = tuple(",".join(form.columns or csv_files.COLUMNS) for form in FORMS.values())
FILES = (
    st.lists(DOCUMENTS | st.binary(max_size=40), min_size=1, max_size=4).map(b"\n".join)
    | st.tuples(st.sampled_from(HEADS), st.lists(CELLS, min_size=1, max_size=4)).map(
        lambda made: "\n".join([made[0], *(",".join(cells) for cells in made[1])]).encode()
    )
)  # fmt: skip


@given(FILES, st.sampled_from([None, *FORMS]))
@examples(400)
def test_any_file_is_rows_or_refused_in_one_short_line(content: bytes, form: str | None) -> None:
    with refused_in_a_line():
        read(content, form)
    csv.field_size_limit(131_072)


def test_a_file_that_is_no_trace_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl"
    path.write_bytes(DEEP % nested(1000))
    with pytest.raises(TraceInvalid, match=r"bomb\.jsonl.*hash_ids"):
        list(rows.read_trace(path))
