"""How the benchmark of crashes reads the status lines of its routers."""

from benchmarks.crashes.__main__ import Reporting


def test_a_router_that_is_done_has_nothing_that_waits() -> None:
    """Its last status line may still report a backlog, for which the benchmark would wait ten minutes."""
    reporting = Reporting.__new__(Reporting)
    reporting.told = [{"oldest_seconds": 9.0, "batches": 40}, {"oldest_seconds": 0.5, "batches": 2}]
    reporting.done = [{"done": True}, {}]
    assert (reporting.oldest_seconds, reporting.batches) == (0.5, 2)
    reporting.done = [{"done": True}, {"done": True}]
    assert (reporting.oldest_seconds, reporting.batches) == (0.0, 0)
