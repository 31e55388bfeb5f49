"""Work on foreign bytes is linear: twice the bytes cost at most 2.5 times the work, whatever the bytes are.

Work is counted, not timed (`fairlead_testing.steps`). Each shape repeats a token that a parser searches for, cuts it,
or leaves out its end.
"""

import contextlib
from collections.abc import Callable

import msgspec
import pytest
import yaml

import fairlead_process.grpc_server.frame_reader
import fairlead_process.json_documents
import fairlead_process.yaml_documents
import fairlead_router.engines.engine_pages
import fairlead_router.kv_events.wire
import fairlead_router.protocols.answers
import fairlead_router.protocols.side_answers
import fairlead_router.protocols.squeezing
import fairlead_router.serving.forms
from fairlead.kv_events.block_index import BlockIndex
from fairlead.kv_events.sources import Source
from fairlead_process.grpc_server.frame_reader import FrameReader
from fairlead_process.grpc_server.http2 import PREFACE, ConnectionFailed
from fairlead_process.yaml_documents import read_yaml
from fairlead_router.engines.engine_pages import fetched_blocks, read_models, read_page
from fairlead_router.engines.model_cards import read_cards
from fairlead_router.kv_events.sources import SourcesUnreadable, read_sources
from fairlead_router.kv_events.wire import decode
from fairlead_router.protocols.answers import LongAnswer, StreamReader, parse_event, read_whole, split_events
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.protocols.side_answers import EVENTS, SideAnswer
from fairlead_router.protocols.squeezing import Squeezed
from fairlead_router.serving.forms import PassingForm
from fairlead_testing.steps import CountedBytes, assert_linear

Shape = Callable[[int], bytes]


def repeated(piece: bytes, before: bytes = b"", after: bytes = b"") -> Shape:
    """Return the piece repeated up to this many bytes."""
    return lambda size: before + piece * (size // len(piece)) + after


GAUGE = b"vllm:kv_cache_usage_perc"
PAGES = {
    "the name of a gauge in one line": repeated(GAUGE),
    "the name of a gauge with labels that do not end": repeated(GAUGE + b'{engine="0'),
    "the name at the beginning of lines without a value": repeated(GAUGE + b"\n"),
    "names that begin alike": repeated(b"\n" + GAUGE + b"x 1"),
    "well-formed samples of many ranks": lambda size: b"".join(b'%b{engine="%d"} 0.5\n' % (GAUGE, rank) for rank in range(size // 40)),
    "labels of a cache in one line": repeated(b',block_size="', b"vllm:cache_config_info{", b"} 1\n"),
    "numbers of one line": repeated(b"1 ", GAUGE + b" "),
    "digits": repeated(b"9", GAUGE + b" "),
    "closing braces": repeated(b"}", GAUGE + b"{"),
    "empty lines": repeated(b"\n"),
}


@pytest.mark.parametrize("shape", PAGES.values(), ids=PAGES)
def test_a_page_of_metrics(shape: Shape) -> None:
    def read(page: bytes) -> None:
        read_page(page, "vllm", GAUGE.decode())
        fetched_blocks(page)

    assert_linear(read, shape, 20_000, fairlead_router.engines.engine_pages)


EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
OTHER = b'data: {"choices":[{"index":0,"delta":{"content":"a \\"b\\""},"finish_reason":null}],"n":1}\n\n'
STREAMS = {
    "an event that does not end": repeated(b"x", b"data: "),
    "lines that end no event": repeated(b"data: x\n"),
    "lines that end in returns": repeated(b"data: x\r"),
    "returns and newlines": repeated(b"data: x\r\n"),
    "events alike": repeated(EVENT),
    "events that differ": repeated(OTHER),
    "events alike among others": repeated(EVENT + OTHER),
    "empty events": repeated(b"\n\n"),
    "comments": repeated(b": ping\n\n"),
    "one string": repeated(b"x", b'data: {"choices":[{"delta":{"content":"'),
    "escapes": repeated(b'\\"', b'data: {"choices":[{"delta":{"content":"'),
    "brackets": repeated(b"[", b'data: {"choices":'),
    "quotes": repeated(b'"', b"data: "),
    "ends": repeated(b"data: [DONE]\n\n"),
    "names": repeated(b"event: response.output_text.delta\n"),
}


@pytest.mark.parametrize("shape", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("piece", [16, 64 * 1024], ids=["small-pieces", "large-pieces"])
@pytest.mark.parametrize(
    ("dialect", "hides", "whole"), [(Dialect.OPENAI, True, False), (Dialect.OPENAI, False, True), (Dialect.RESPONSES, False, False)]
)
def test_a_streamed_answer(shape: Shape, piece: int, dialect: Dialect, hides: bool, whole: bool) -> None:
    def read(stream: bytes) -> None:
        reader = StreamReader(dialect, hides_usage=hides, whole=whole)
        for start in range(0, len(stream), piece):
            reader.feed(CountedBytes(bytes.__getitem__(stream, slice(start, start + piece))))
        reader.end()

    assert_linear(read, shape, 8_000, fairlead_router.protocols.answers, fairlead_router.protocols.squeezing)


DOCUMENTS = {
    "an error again and again": repeated(b'"finish_reason": ', b'{"choices":[', b"]}"),
    "choices": repeated(b'{"index":0},', b'{"choices":[', b"{}]}"),
    "a deep list": repeated(b"[", b'{"data":'),
    "what is not JSON": repeated(b"NaN,", b'{"data":[', b"1]}"),
    "a cut string": repeated(b"x", b'{"content":"'),
    "blanks": repeated(b" "),
    "escapes": repeated(b"\\u0041", b'{"usage":"', b'"}'),
}


@pytest.mark.parametrize("shape", DOCUMENTS.values(), ids=DOCUMENTS)
def test_an_answer_that_is_not_streamed(shape: Shape) -> None:
    modules = (fairlead_router.protocols.answers, fairlead_router.protocols.squeezing, fairlead_process.json_documents)
    assert_linear(read_whole, shape, 20_000, *modules)


BOTH = DOCUMENTS | STREAMS


@pytest.mark.parametrize("shape", BOTH.values(), ids=BOTH)
def test_a_document_that_is_squeezed_as_it_passes(shape: Shape) -> None:
    def read(document: bytes) -> None:
        squeezed = Squeezed(1)
        for start in range(0, len(document), 100):
            squeezed.feed(CountedBytes(bytes.__getitem__(document, slice(start, start + 100))))
        squeezed.document()

    assert_linear(read, shape, 20_000, fairlead_router.protocols.squeezing)


@pytest.mark.parametrize("shape", BOTH.values(), ids=BOTH)
@pytest.mark.parametrize("reader", [LongAnswer, lambda: SideAnswer(b"application/json"), lambda: SideAnswer(EVENTS)])
def test_an_answer_that_is_judged_as_it_passes(shape: Shape, reader: Callable[[], LongAnswer | SideAnswer]) -> None:
    def read(answer: bytes) -> None:
        made = reader()
        for start in range(0, len(answer), 100):
            made.feed(CountedBytes(bytes.__getitem__(answer, slice(start, start + 100))))
        made.failure  # noqa: B018  # reading it is the work

    modules = (fairlead_router.protocols.answers, fairlead_router.protocols.side_answers, fairlead_router.protocols.squeezing)
    assert_linear(read, shape, 20_000, *modules)


@pytest.mark.parametrize("shape", STREAMS.values(), ids=STREAMS)
def test_events_that_are_split_at_once(shape: Shape) -> None:
    def read(stream: bytes) -> None:
        for event in split_events(stream):
            parse_event(event)

    assert_linear(read, shape, 8_000, fairlead_router.protocols.answers)


MARK = b"--b"
FORMS = {
    "parts without content": repeated(b"\r\n" + MARK, MARK),
    "parts with a head": repeated(b'\r\ncontent-disposition: form-data; name="x"\r\n\r\ny\r\n' + MARK, MARK),
    "a part that does not end": repeated(b"x", MARK + b'\r\ncontent-disposition: form-data; name="x"\r\n\r\n'),
    "nearly the end of a part": repeated(b"\r\n--", MARK + b'\r\ncontent-disposition: form-data; name="x"\r\n\r\n'),
    "a name with very many parameters": repeated(b'; name="x"', MARK + b"\r\ncontent-disposition: form-data", b"\r\n\r\n"),
    "a name of backslashes": repeated(b"\\\\", MARK + b'\r\ncontent-disposition: form-data; name="', b"\r\n\r\n"),
}


@pytest.mark.parametrize("shape", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("piece", [64, 1024 * 1024], ids=["small-pieces", "large-pieces"])
def test_a_form(shape: Shape, piece: int) -> None:
    def read(body: bytes) -> None:
        form = PassingForm("multipart/form-data; boundary=b")
        with contextlib.suppress(BadRequest):
            for start in range(0, len(body), piece):
                form.feed(CountedBytes(bytes.__getitem__(body, slice(start, start + piece))))

    assert_linear(read, shape, 7_000, fairlead_router.serving.forms)


def frame(kind: int, payload: bytes, flags: int = 0, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


FRAMES = {
    "one large frame": lambda size: PREFACE + frame(0, b"x" * size),
    "small frames": lambda size: PREFACE + frame(0, b"x") * (size // 10),
    "empty frames": lambda size: PREFACE + frame(0, b"") * (size // 9),
    "headers in very many frames": lambda size: PREFACE + frame(1, b"x") + frame(9, b"x") * (size // 10),
}


@pytest.mark.parametrize("shape", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("piece", [7, 1024 * 1024], ids=["small-pieces", "large-pieces"])
def test_frames_of_http2(shape: Shape, piece: int) -> None:
    def read(data: bytes) -> None:
        reader = FrameReader(lambda kind, flags, stream, payload: None, lambda stream, flags, block: None)
        with contextlib.suppress(ConnectionFailed):
            for start in range(0, len(data), piece):
                reader.read(CountedBytes(bytes.__getitem__(data, slice(start, start + piece))))

    assert_linear(read, shape, 20_000, fairlead_process.grpc_server.frame_reader)


def stored(number: int, **more: object) -> dict[str, object]:
    return {"type": "BlockStored", "block_hashes": [number], "parent_block_hash": None, "token_ids": [number] * 4, "block_size": 4, **more}


def batch(*events: object) -> bytes:
    return msgspec.msgpack.encode([1.0, list(events)])


BATCHES = {
    "blocks": lambda size: batch(*(stored(number) for number in range(size))),
    "blocks in ever new memory": lambda size: batch(*(stored(number, medium=f"t{number}") for number in range(size))),
    "blocks of ever new groups": lambda size: batch(*(stored(n, group_idx=n, kv_cache_spec_kind="mamba") for n in range(size))),
    "blocks that were not there": lambda size: batch(*({"type": "BlockRemoved", "block_hashes": [number]} for number in range(size))),
    "both encodings": lambda size: batch(*(stored(number) if number % 2 else ["AllBlocksCleared"] for number in range(size))),
    "events of a newer engine": lambda size: batch(*({"type": "Other", "x": [number]} for number in range(size))),
    "one event of many blocks": lambda size: batch(
        {
            **stored(0),
            "block_hashes": list(range(size)),
            "token_ids": [1] * 4 * size,
            "extra_keys": [["salt", number] for number in range(size)],
        }
    ),
    "copies of one block": lambda size: batch(*(stored(1) for _ in range(size))),
}


@pytest.mark.parametrize("shape", BATCHES.values(), ids=BATCHES)
def test_a_batch_of_kv_events(shape: Shape) -> None:
    def read(payload: bytes) -> None:
        index = BlockIndex()
        index.apply(Source(instance="i0"), decode(payload).events)
        assert index.slots_version <= 8

    assert_linear(read, shape, 500, fairlead_router.kv_events.wire)


LISTS = {
    "models": repeated(b'{"id":"m"},', b'{"data":[', b'{"id":"m"}]}'),
    "deep models": repeated(b"[", b'{"data":[{"id":"m","x":'),
    "sources": repeated(b'{"endpoint":"tcp://*:1"},', b"[", b"{}]"),
    "ranks": lambda size: b"{" + b",".join(b'"%d":{}' % rank for rank in range(size // 8)) + b"}",
    "quotes": repeated(b'\\"', b'{"data":"', b'"}'),
}


@pytest.mark.parametrize("shape", LISTS.values(), ids=LISTS)
def test_lists_of_models_and_of_sources(shape: Shape) -> None:
    def read(answer: bytes) -> None:
        read_cards(answer)
        with contextlib.suppress(fairlead_router.engines.engine_pages.PageUnreadable):
            read_models(answer)
        with contextlib.suppress(SourcesUnreadable):
            read_sources(answer, "vllm", "10.0.0.7:8000")

    assert_linear(read, shape, 20_000, fairlead_process.json_documents)


YAMLS = {
    "a flow list": repeated(b"[", b"a: "),
    "items": repeated(b"- a\n"),
    "fields": lambda size: b"".join(b"k%d: v\n" % number for number in range(size // 7)),
    "one string": repeated(b"x ", b'a: "', b'"'),
    "aliases": lambda size: b"a: &a [x]\nb: [" + b"*a, " * (size // 4) + b"*a]",
    "comments": repeated(b"# x\n"),
    "question marks": repeated(b"? "),
    "lines of a block": repeated(b"  x\n", b"a: |\n"),
    "escapes": repeated(b"\\n", b'a: "', b'"'),
}


@pytest.mark.parametrize("shape", YAMLS.values(), ids=YAMLS)
def test_yaml(shape: Shape) -> None:
    def read(text: bytes) -> None:
        with contextlib.suppress(yaml.YAMLError):
            read_yaml(text)

    assert_linear(read, shape, 1_000, fairlead_process.yaml_documents)


def test_the_count_sees_work_that_is_not_linear() -> None:
    def copies(text: bytes) -> None:
        rest = CountedBytes()
        for start in range(0, len(text), 10):
            rest = rest + text[start : start + 10]

    def searches(text: bytes) -> None:
        for start in range(len(text)):
            text.find(b"y", start)

    for parse in (copies, searches):
        with pytest.raises(AssertionError, match="times as much"):
            assert_linear(parse, repeated(b"x"), 1_000)
