"""The section on scaling: its structure from a quick run, and the arithmetic of its figures."""

from pathlib import Path

from reproductions import scaling, scaling_elasticity, scaling_ratio
from reproductions.scaling_runs import Asked, Scaled, phased
from reproductions.sections import Context

from fairlead.instances import Role
from fairlead_simulator.simulation.autoscaling import SizeChange
from fairlead_simulator.workloads.phases import DECODE_HEAVY, PREFILL_HEAVY


def asked(at: float, in_time: bool = True, hit_tokens: int = 0) -> Asked:
    return Asked(at=at, in_time=in_time, prompt_tokens=100, hit_tokens=hit_tokens)


def moved(*times: float) -> tuple[SizeChange, ...]:
    return tuple(SizeChange(at=at, role=role, replicas=4) for at in times for role in (Role.PREFILL, Role.DECODE))


def test_the_section_has_a_table_per_promise(tmp_path: Path) -> None:
    text = scaling.write(Context(docs=tmp_path, seeds=1, quick=True, say=lambda _: None))
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### Instances that follow the work",
        "### Out of an overload, and back",
        "### Which instances go",
        "### At rest under constant load",
    ]
    assert text.count("| --- |") == 4 and "nan" not in text


def test_figures_are_of_the_requests_that_came_in_a_span() -> None:
    run = Scaled(label="", asked=(asked(0, False), asked(5, hit_tokens=50), asked(10, hit_tokens=100)), changes=moved(3, 8, 500), failed=0)
    assert (run.attainment(), run.attainment(5), run.attainment(20)) == (2 / 3, 1.0, 1.0)
    assert run.hit_rate(5, 11) == 0.75
    assert len(run.sizes(Role.PREFILL)) == 2 and run.least_gap == 5


def test_a_move_is_taken_back_when_the_next_one_goes_the_other_way() -> None:
    def run(*numbers: int) -> Scaled:
        changes = tuple(SizeChange(at=float(at), role=Role.PREFILL, replicas=number) for at, number in enumerate(numbers))
        return Scaled(label="", asked=(asked(100),), changes=changes, failed=0)

    assert scaling_ratio.moves_taken_back(run(7, 8, 7), (6, 6)) == 1
    assert scaling_ratio.moves_taken_back(run(7, 8, 9), (6, 6)) == 0
    assert scaling_ratio.moves_taken_back(run(), (6, 6)) == 0


def test_recovery_counts_from_the_first_bin_after_which_none_is_late() -> None:
    late = Scaled(label="", asked=tuple(asked(at, at not in (4, 24)) for at in range(60)), changes=(), failed=0)
    assert scaling_elasticity.recovered_after(late, 0, 60) == 0
    missed = Scaled(label="", asked=tuple(asked(at, at >= 35 or 10 <= at < 20) for at in range(60)), changes=(), failed=0)
    assert scaling_elasticity.recovered_after(missed, 0, 60) == 40
    assert scaling_elasticity.recovered_after(missed, 0, 30) is None


def test_phases_take_turns_and_fill_their_time() -> None:
    loaded = phased(PREFILL_HEAVY, DECODE_HEAVY)
    first = [row for row, at in zip(loaded.rows, loaded.seconds, strict=True) if at < 1190]
    last = [row for row, at in zip(loaded.rows, loaded.seconds, strict=True) if at > 1210]
    assert 3.1 < len(first) / 1190 < 3.7 and 7.5 < len(last) / 1190 < 8.5
