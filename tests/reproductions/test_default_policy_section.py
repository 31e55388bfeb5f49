"""The section on the default policy: its verdicts, and that it can be written."""

from pathlib import Path

from reproductions.default_policy import SECTION, describe
from reproductions.default_policy_cells import OURS, Outcome, Outcomes, Setting, goodput, policies, verdict
from reproductions.sections import Context


def outcome(attainment: float, ttft_p90: float = 1.0) -> Outcome:
    return Outcome(attainment=attainment, ttft_p90=ttft_p90, hit_rate=0.3, rejected=0.0)


def outcomes(ours: Outcome, best: Outcome, name: str = "ear") -> Outcomes:
    rest = {(1.25, policy): outcome(0.1) for policy in policies()}
    return rest | {(1.25, OURS): ours, (1.25, name): best}


def test_half_a_point_less_is_a_tie_and_more_is_lost() -> None:
    assert verdict(outcomes(outcome(0.900), outcome(0.905)), 1.25).most_in_time
    assert not verdict(outcomes(outcome(0.899), outcome(0.905)), 1.25).most_in_time


def test_latency_is_compared_with_the_fastest_of_those_that_tie_for_the_most_in_time() -> None:
    found = outcomes(outcome(0.9, 2.0), outcome(0.905, 2.0)) | {(1.25, "dualmap"): outcome(0.904, 1.0), (1.25, "preble"): outcome(0.8, 0.1)}
    one = verdict(found, 1.25)
    assert (one.best, one.best_p90) == ("ear", 1.0)
    assert not one.fast_enough


def test_goodput_is_the_largest_rate_with_nine_tenths_in_time() -> None:
    found = {(rate, OURS): outcome(share) for rate, share in ((0.5, 1.0), (1.0, 0.9), (1.25, 0.89))}
    assert goodput(found, OURS) == 1.0
    assert goodput({(0.5, OURS): outcome(0.2)}, OURS) == 0


def test_a_cell_that_is_not_won_is_told() -> None:
    settings = {Setting(workload="conversation", instances=n, mode="Disabled"): outcomes(outcome(0.5, 9.0), outcome(0.8)) for n in (8, 32)}
    text = describe(Context(docs=Path()), settings)
    assert "more in time in 0 of 2 cells" in text
    assert text.count("- Not won: ") == 2
    assert "0.6 times" in text


def test_a_lead_past_saturation_is_told_only_where_there_is_one() -> None:
    both = [Setting(workload="conversation", instances=n, mode="Disabled") for n in (8, 32)]
    behind, ahead = outcomes(outcome(0.5), outcome(0.8)), outcomes(outcome(0.9), outcome(0.8))
    assert "Past saturation `fairlead` leads in no cell." in describe(Context(docs=Path()), dict.fromkeys(both, behind))
    assert "`fairlead`'s lead past saturation\n" in describe(Context(docs=Path()), dict.fromkeys(both, ahead))
    assert "lead past saturation (in 1 of 2 cells)\n" in describe(Context(docs=Path()), dict(zip(both, (behind, ahead), strict=True)))


def test_the_section_is_written_with_its_tables_and_its_plot(tmp_path: Path) -> None:
    text = SECTION.write(Context(docs=tmp_path, seeds=1, quick=True, say=lambda _: None))
    assert text.count("| fairlead |") == 8
    assert (tmp_path / "images/benchmarks/default-policy.png").stat().st_size > 10_000
