"""The section on own history against KV events: every figure it shows is run, and events show what history cannot."""

from pathlib import Path

from reproductions.caches import everywhere, exact, late_and_lost
from reproductions.caches_runs import SOON, TWO, Trial, run_trials, trials
from reproductions.sections import Context

from fairlead_simulator.experiments.cells import CellResult

QUICK = Context(docs=Path("unused"), quick=True, say=lambda _: None)


def test_two_routers_know_more_of_caches_by_events_than_by_what_each_sent() -> None:
    own, events = Trial(policy="min-ttft", setting=TWO), Trial(policy="min-ttft", setting=TWO, heard=SOON)
    _, runs = run_trials(QUICK, (own, events))
    assert exact(runs, events) > exact(runs, own)


def test_every_trial_that_the_tables_show_is_run() -> None:
    _, runs = run_trials(QUICK, (Trial(policy="round-robin", setting=TWO),))
    (result,) = runs.values()
    every: dict[Trial, CellResult] = dict.fromkeys(trials(), result)
    assert everywhere(every).count("| `heimdall` |") == 6
    assert late_and_lost(every).count("| `fairlead`, ") == 8
