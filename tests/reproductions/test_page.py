"""The page of reproductions and its command, and what sections share in reading runs."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from reproductions import __main__ as command
from reproductions.page import HEAD, render, update
from reproductions.runs import goodput, mean, percent, run, table, workload
from reproductions.sections import Context, Section

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.errors import WorkloadImpossible
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan
from fairlead_simulator.experiments.cells import Cell, CellResult
from fairlead_simulator.experiments.measuring import Figures, Targets
from fairlead_simulator.simulation.pools import SimulatedPool

PRESET = preset("dualmap-910b4-qwen7b")


def section(name: str, text: str = "") -> Section:
    return Section(name=name, title=f"About {name}", write=lambda context: text)


SECTIONS = (section("first"), section("second"), section("third"))


def cell(rate: float, seed: int, policy: str = "round-robin") -> Cell:
    spec = SimulatedPool(preset=PRESET, instances=2, policy=policy, prefill_tokens_per_second=6000.0, seed=seed)
    return Cell(label=policy, spec=spec, plan=ArrivalPlan(rate=rate, warmup=2, seed=seed), targets=Targets(ttft_seconds=5.0))


def result(rate: float, attainment: float, seed: int = 0, ttft_p90: float | None = 1.0) -> CellResult:
    figures = Figures(
        requests=10,
        served=10,
        failed=0,
        rate_achieved=rate,
        attainment=attainment,
        ttft_attainment=attainment,
        rejected_share=0.0,
        ttft_p50=ttft_p90,
        ttft_p90=ttft_p90,
        ttft_p99=ttft_p90,
        tpot_p90=None,
        e2e_p50=None,
        e2e_p90=None,
        hit_rate=0.0,
        ideal_hit_rate=0.0,
        belief_exact=None,
        belief_error=None,
        load_cv=0.0,
        migrations=0,
        reroutes=0,
        preemptions=0,
        output_tokens_per_second=0.0,
    )
    return CellResult(cell=cell(rate, seed), figures=figures, refusals={}, wall_seconds=0.0, cpu_seconds=0.0, events=0)


def run_command(monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], sections: Sequence[Section]) -> None:
    monkeypatch.setattr(command, "SECTIONS", sections)
    monkeypatch.setattr("sys.argv", ["reproductions", *arguments])
    command.main()


def test_a_page_begins_with_its_head_and_follows_the_catalogue(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "benchmarks.md"
    update(page, SECTIONS, {"third": "C", "first": "A"})
    update(page, SECTIONS, {"second": "B"})
    text = page.read_text()
    assert text.startswith(HEAD)
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## About first", "## About second", "## About third"]


def test_replacing_a_section_leaves_every_other_byte_as_it_was() -> None:
    before = render("", SECTIONS, {"first": "A\n\n| a |\n| --- |", "second": "old", "third": r"\1 \g<0> C"})
    after = render(before, SECTIONS, {"second": "new"})
    assert after == before.replace("\nold\n", "\nnew\n")
    assert render(after, SECTIONS, {}) == after


def test_a_section_no_longer_in_the_catalogue_disappears() -> None:
    before = render("", SECTIONS, {"first": "A", "third": "C"})
    assert "About third" not in render(before, SECTIONS[:2], {})


def test_each_section_says_how_to_run_it_again() -> None:
    text = render("", SECTIONS, {"second": "B"})
    assert "--jobs 2 second` (`reproductions/second.py`)." in text
    assert "--jobs 2 --seeds 1 second` (" in render("", SECTIONS, {"second": "B"}, seeds=1)
    assert "--conversation mine.jsonl --jobs 2 second` (" in render("", SECTIONS, {"second": "B"}, trace="mine.jsonl")
    assert "reproductions --jobs 2 second` (" in render("", SECTIONS, {"second": "B"}, trace=None)


def test_an_unknown_section_is_one_line_of_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_command(monkeypatch, ["--docs", str(tmp_path), "first", "fourth"], SECTIONS)
    errors = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert stopped.value.code == 2
    assert errors == ["python -m reproductions: error: no section 'fourth'; there are first, second, third"]
    assert not (tmp_path / "benchmarks.md").exists()


def test_a_missing_trace_is_told_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        run_command(monkeypatch, ["--docs", str(tmp_path), "--conversation", str(tmp_path / "none.jsonl")], SECTIONS)
    assert "none.jsonl: no such file" in capsys.readouterr().err
    assert not (tmp_path / "benchmarks.md").exists()


def test_what_the_simulator_cannot_do_is_an_error_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def impossible(context: Context) -> str:
        raise WorkloadImpossible("request 7 is too long")

    sections = (section("first", "A"), Section(name="second", title="Second", write=impossible))
    with pytest.raises(SystemExit):
        run_command(monkeypatch, ["--docs", str(tmp_path)], sections)
    captured = capsys.readouterr().err
    assert "error: request 7 is too long" in captured
    assert "Traceback" not in captured
    assert "About first" in (tmp_path / "benchmarks.md").read_text()


def test_only_the_sections_named_run_and_are_given_the_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[Context] = []

    def write(context: Context) -> str:
        given.append(context)
        return "B"

    sections = (section("first"), Section(name="second", title="Second", write=write))
    run_command(monkeypatch, ["--docs", str(tmp_path), "--seeds", "5", "--jobs", "2", "--quick", "second"], sections)
    assert [(one.docs, one.seeds, one.jobs, one.quick) for one in given] == [(tmp_path, 5, 2, True)]
    assert "About first" not in (tmp_path / "benchmarks.md").read_text()


def test_a_plot_has_its_folder_made(tmp_path: Path) -> None:
    image = Context(docs=tmp_path).image("one.png")
    assert image == tmp_path / "images/benchmarks/one.png"
    assert image.parent.is_dir()


def test_a_table_sets_numbers_to_the_right() -> None:
    assert (
        table(["policy", "P90", "hits"], [("`ear`", "1.5", "3")]) == "| policy | P90 | hits |\n| --- | ---: | ---: |\n| `ear` | 1.5 | 3 |"
    )


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0.0 %"), (0.12345, "12.3 %"), (1.0, "100.0 %"), (0.9996, "100.0 %"), (-0.004, "-0.4 %")]
)
def test_shares_are_percent_with_one_digit(share: float, text: str) -> None:
    assert percent(share) == text


def test_goodput_is_the_largest_rate_whose_seeds_have_nine_in_ten_in_time_in_the_mean() -> None:
    results = [result(2.0, 1.0), result(4.0, 0.95, 0), result(4.0, 0.86, 1), result(6.0, 0.95, 0), result(6.0, 0.84, 1)]
    assert goodput(results) == 4.0
    assert goodput([result(2.0, 0.899)]) == 0.0
    assert goodput([]) == 0.0


def test_goodput_may_lie_above_a_rate_that_failed() -> None:
    assert goodput([result(2.0, 0.5), result(4.0, 0.95)]) == 4.0


def test_a_mean_leaves_out_runs_that_have_no_such_figure() -> None:
    results = [result(2.0, 0.5, ttft_p90=1.0), result(2.0, 1.0, 1, ttft_p90=3.0), result(2.0, 0.0, 2, ttft_p90=None)]
    assert mean(results, lambda one: one.ttft_p90) == 2.0
    assert mean(results, lambda one: one.attainment) == 0.5
    assert mean(results[2:], lambda one: one.ttft_p90) == 0.0


def test_results_come_in_the_order_of_the_cells_however_many_processes(tmp_path: Path) -> None:
    loaded = workload("conversation", requests=12, max_input=PRESET.max_input_tokens)
    cells = [cell(rate, seed) for rate in (8.0, 2.0, 4.0) for seed in (1, 0)]
    said: list[str] = []
    alone = run(Context(docs=tmp_path, say=said.append), "test", loaded, cells)
    together = run(Context(docs=tmp_path, jobs=2, say=said.append), "test", loaded, cells)
    assert [one.cell for one in alone] == [one.cell for one in together] == cells
    assert [one.figures for one in alone] == [one.figures for one in together]
    assert len(said) == 2 * len(cells)
    assert said[len(cells) - 1].startswith(f"test: {len(cells)}/{len(cells)}  round-robin, ")


def test_a_workload_is_the_recorded_trace_if_there_is_one(tmp_path: Path) -> None:
    lines = [
        {"timestamp": 1000 * number, "input_length": length, "output_length": 5, "hash_ids": list(range(-(-length // 512)))}
        for number, length in enumerate((600, 30_000, 700, 800, 900))
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    recorded = workload("conversation", requests=3, max_input=20_480, recorded=trace)
    assert [row.input_length for row in recorded.rows] == [600, 700, 800]
    generated = workload("conversation", requests=3, max_input=20_480, seed=1)
    assert len(generated.rows) == 3
    assert generated.rows != workload("conversation", requests=3, max_input=20_480, seed=2).rows
