"""A process may take as long to become ready as it makes progress, and no longer."""

from fairlead_sandbox.supervised_process import ENOUGH_CPU_SECONDS, STILL_SECONDS, StartingTime


def given_up_at(cpu_per_second: float, least: float = 180.0, most: int = 100_000) -> int | None:
    time = StartingTime(least)
    return next((second for second in range(most) if time.is_over(second, cpu_per_second * second)), None)


def test_a_process_that_hangs_is_given_up_when_its_time_is_over() -> None:
    assert given_up_at(0.0) == 180


def test_a_process_that_gets_little_of_the_machine_has_time_for_its_start() -> None:
    assert given_up_at(0.03) == ENOUGH_CPU_SECONDS / 0.03


def test_a_process_that_had_its_time_and_waits_is_given_up() -> None:
    assert given_up_at(1.0) == 180


def test_one_that_computes_no_more_is_given_up_shortly_after() -> None:
    time = StartingTime(180.0)
    assert not any(time.is_over(second, 0.03 * second) for second in range(300))
    assert not time.is_over(299 + STILL_SECONDS / 2, 9.0)
    assert time.is_over(300 + 2 * STILL_SECONDS, 9.0)


def test_another_try_begins_to_count_its_cpu_time_anew() -> None:
    time = StartingTime(180.0)
    assert not time.is_over(0.0, 0.0)
    assert not time.is_over(190.0, 5.0)
    assert not time.is_over(200.0, 0.0), "the next process has just begun"
