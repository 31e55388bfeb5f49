"""`fairlead kv-events check` on recordings of an engine that behaves as vLLM's cache does."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlead_cli.main import run
from fairlead_testing.worlds.kv_engines import Event, KvEngine, RecordedEngine, as_array, as_map, digests

Rows = list[dict[str, Any]]


def written(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def checked(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Return the JSON that the command prints; the command must have found agreement."""
    code = run(["kv-events", "check", str(path), "--json", *options])
    output = capsys.readouterr()
    assert (code, output.err) == (0, "")
    document: dict[str, Any] = json.loads(output.out)
    return document


@pytest.fixture(scope="module")
def cold() -> Rows:
    """Return a recording of 300 requests to an engine with an empty cache, which evicts blocks all the time."""
    return RecordedEngine().rows(300)


def test_the_index_agrees_with_the_engine(cold: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = checked(written(tmp_path / "recording.jsonl", cold), capsys)
    assert found["reported_cached_tokens"] == sum(row["cached_tokens"] for row in cold if row["kind"] == "request") > 1000
    assert found["predicted_cached_tokens"] == pytest.approx(found["reported_cached_tokens"], rel=0.005)
    assert found["exact_share"] >= 0.98 and found["requests"] == 300
    assert found["engine_hashes"] == "sha256_cbor, PYTHONHASHSEED=0"
    assert (found["batches_lost"], found["blocks_held_unseen"], found["bad_rows"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("engine", "encode"),
    [
        (KvEngine(capacity=90, block_size=3, hashing=digests("sha256_cbor")), as_array),
        (KvEngine(hashing=digests("sha256")), as_array),
        (KvEngine(hashing=digests("xxhash_cbor")), as_map),
    ],
    ids=["arrays, another block size", "arrays, digests", "maps, digests of xxhash"],
)
def test_it_agrees_in_every_encoding_with_hashes_nobody_can_recompute(
    engine: KvEngine, encode: Callable[[Event], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = checked(written(tmp_path / "recording.jsonl", RecordedEngine(engine=engine, encode=encode).rows(200)), capsys)
    assert found["reported_cached_tokens"] > 1000
    assert found["engine_hashes"] is None


@pytest.mark.parametrize("hashes", ["recomputed", "unknown"])
def test_it_agrees_when_the_cache_was_warm_before_the_recording_began(
    hashes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = KvEngine() if hashes == "recomputed" else KvEngine(hashing=digests("sha256"))
    whole = RecordedEngine(engine=engine).rows(400)
    begin = whole[200]["at" if whole[200]["kind"] == "event" else "sent"]
    late = [row for row in whole if row.get("at", row.get("sent")) >= begin]
    assert min(row["seq"] for row in late if row["kind"] == "event") > 50
    found = checked(written(tmp_path / "recording.jsonl", late), capsys)
    assert found["blocks_held_unseen"] > 10
    assert (found["engine_hashes"] is None) == (hashes == "unknown")


def test_batches_that_are_missing_are_counted_and_what_they_told_is_concluded(
    cold: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for row in cold if row.get("seq") not in (70, 71)]
    found = checked(written(tmp_path / "recording.jsonl", rows), capsys)
    assert found["batches_lost"] == 2 and found["blocks_held_unseen"] > 10


def test_batches_that_come_twice_count_once(cold: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [row for row in cold if row["kind"] == "event"]
    rows = [again for row in cold for again in ([row, row] if row in events[40:60] else [row])]
    assert checked(written(tmp_path / "recording.jsonl", rows), capsys)["batches_repeated"] == 20


@pytest.mark.parametrize("told", [True, False], ids=["the request's engine told", "the request's engine not told"])
@pytest.mark.parametrize("topics", [("kv@pod-0@tiny", "kv@pod-1@tiny"), ("kv@pod-0@tiny", "kv@pod-0@tiny")], ids=["instances", "ranks"])
def test_every_instance_and_rank_caches_for_itself(
    topics: tuple[str, str], told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both get the same prompts at different times, so that one holds blocks that the other has evicted."""
    recordings = [RecordedEngine(topic=topic, rank=rank, seed=1, start=1.0 + 0.7 * rank).rows(100) for rank, topic in enumerate(topics)]
    for topic, rows in zip(topics, recordings, strict=True):
        for row in rows:
            if row["kind"] == "request" and told:
                row["topic"] = topic
    rows = sorted((row for each in recordings for row in each), key=lambda row: float(row["at"] if row["kind"] == "event" else row["done"]))
    path = written(tmp_path / "recording.jsonl", rows)
    assert run(["kv-events", "check", str(path), "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert found["sources"] == 2
    assert found["exact_share"] >= (0.98 if told and topics[0] != topics[1] else 0.9)


def test_gzipped_with_rows_as_a_table(cold: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recording.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in cold).encode()))
    found = checked(path, capsys, "--rows")
    assert [row["id"] for row in found["rows"]] == list(range(300))
    assert sum(row["predicted_cached_tokens"] for row in found["rows"]) == found["predicted_cached_tokens"]
    assert run(["kv-events", "check", str(path), "--rows"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "id  prompt_tokens  predicted_cached_tokens  reported_cached_tokens"
    assert f"predicted_cached_tokens: {found['predicted_cached_tokens']}" in lines


def test_disagreement_is_exit_code_1(cold: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row | {"cached_tokens": row["cached_tokens"] + 4} if row["kind"] == "request" else row for row in cold]
    assert run(["kv-events", "check", str(written(tmp_path / "recording.jsonl", rows))]) == 1
    assert "agrees: False" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "write one JSON object per line"),
        ('{"kind": "event", "at": 1.0, "topic": "", "payload": ""}', "missing required field `seq`"),
        ('{"kind": "event", "at": 1.0, "seq": 900, "payload": "!"}', "payload: "),
        ('{"kind": "event", "at": 1.0, "seq": 900, "payload": "kw=="}', "it is the base64 of the message's msgpack frame"),
        ('{"kind": "request", "sent": 1.0, "prompt_token_ids": [-1], "cached_tokens": 0}', "$.prompt_token_ids[0]"),
        ('{"kind": "weather"}', "of kind event, request or metrics"),
    ],
)
def test_a_bad_row_costs_that_row_and_is_told_with_its_line(
    line: str, told: str, cold: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "recording.jsonl", cold)
    path.write_text(line + "\n" + path.read_text())
    assert run(["kv-events", "check", str(path), "--json"]) == 0
    output = capsys.readouterr()
    assert output.err.startswith(f"{path}:1: ") and told in output.err and output.err.count("\n") == 1
    assert json.loads(output.out)["bad_rows"] == 1


def test_many_bad_rows_are_not_all_told(cold: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "recording.jsonl", cold)
    path.write_text("{\n" * 9 + path.read_text())
    assert run(["kv-events", "check", str(path)]) == 0
    assert capsys.readouterr().err.splitlines()[5:] == [f"{path}: 4 more rows cannot be used"]


def test_a_recording_cut_off_in_its_middle_is_used_as_far_as_it_goes(
    cold: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recording.jsonl.gz"
    whole = gzip.compress("".join(json.dumps(row) + "\n" for row in cold).encode())
    path.write_bytes(whole[: len(whole) // 2])
    assert run(["kv-events", "check", str(path)]) == 0
    assert "the gzip stream is cut off" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "no row of kind 'event' can be used"),
        (b"\x1f\x8bnot gzip", "cannot be read: "),
        (b"\xff\xfe\n", "no row of kind 'event' can be used"),
    ],
)
def test_a_file_of_which_nothing_can_be_used_is_one_line(
    content: bytes | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recording.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert run(["kv-events", "check", str(path)]) == 2
    error = capsys.readouterr().err
    assert told in error and str(path) in error and error.count("\n") == 1
