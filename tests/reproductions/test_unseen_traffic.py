"""The section on traffic nobody tuned the default policy for: its workloads, its verdicts, and that rows are kept."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from reproductions.sections import Context
from reproductions.unseen_traffic import SECTION, describe
from reproductions.unseen_traffic_cells import (
    CHAT,
    SETTINGS,
    Rows,
    UnseenCell,
    UnseenRow,
    azure_rows,
    bursty,
    cells_of,
    measure,
    settings_of,
)

from fairlead_simulator.errors import SimulatorError
from fairlead_simulator.workloads.kinds import KINDS

FINE = UnseenRow(
    goodput=0.9,
    first_tokens=0.95,
    refused=0.0,
    ttft_p50=0.1,
    ttft_p90=0.5,
    ttft_p99=1.0,
    tpot_p90=0.03,
    hits=0.5,
    output_tokens_per_second=1000.0,
    refused_sessions=0.0,
    bad_sessions=0.1,
)


def rows(ours: UnseenRow, theirs: UnseenRow) -> Rows:
    return {
        UnseenCell(setting=CHAT, rate=1.0, policy=policy, seed=0): row
        for policy, row in (("fairlead", ours), ("ear", theirs), ("lmetric", FINE))
    }


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        (replace(FINE, goodput=0.91, first_tokens=0.98, output_tokens_per_second=1030.0), ""),
        (replace(FINE, goodput=0.915), "goodput 90.0 against 91.5 % of `ear`"),
        (replace(FINE, first_tokens=0.985), "first tokens 95.0 against 98.5 % of `ear`"),
        (replace(FINE, output_tokens_per_second=1040.0), "1,000 against 1,040 output tokens/s of `ear`"),
    ],
)
def test_what_another_policy_does_better_is_said_cell_by_cell(theirs: UnseenRow, told: str) -> None:
    text = describe(Context(docs=Path(), seeds=1), [CHAT], rows(FINE, theirs))
    assert f"Of 1 cells that is so {int(bool(told))} times" in text
    assert told in text


def test_bursts_keep_every_request_its_order_and_the_mean_rate() -> None:
    plain = list(islice(KINDS["chat"].rows(None, None, 0), 2000))
    burst = list(bursty(plain))
    assert [row.hash_ids for row in burst] == [row.hash_ids for row in plain]
    stamps = [row.timestamp_ms for row in burst]
    assert stamps == sorted(stamps)
    assert stamps[-1] == pytest.approx(plain[-1].timestamp_ms, rel=0.1)
    busiest = max(sum(at <= stamp < at + 5000 for stamp in stamps) for at in range(0, round(stamps[-1]), 1000))
    assert busiest > 2 * 5 * len(stamps) / (stamps[-1] / 1e3)


def test_azures_traces_are_read_as_published(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,1025,109\n")
    first, second = azure_rows(path)
    assert (first.timestamp_ms, first.input_length, first.output_length, first.hash_ids) == (0, 374, 44, (0,))
    assert (second.timestamp_ms, second.hash_ids) == (4315, (1, 2, 3))


def test_a_trace_of_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(SimulatorError, match="there is no such workload; name one of agents-long"):
        settings_of(Context(docs=Path(), traces={"chats": Path()}))


def test_rows_that_are_there_are_not_run_again_and_a_whole_quick_run_writes_the_section(tmp_path: Path) -> None:
    context = Context(
        docs=tmp_path, quick=True, seeds=1, say=lambda line: None, rows=tmp_path / "rows.jsonl", policies=("fairlead", "least-loaded")
    )
    text = SECTION.write(context)
    kept = (tmp_path / "rows.jsonl").read_text()
    assert kept.count("\n") == 2 * len(SETTINGS)
    assert all(str(setting) in text for setting in SETTINGS)
    measure(context, cells_of(context, settings_of(context)))
    assert (tmp_path / "rows.jsonl").read_text() == kept
