"""The time limit of tests that wait for other tasks and processes, which is also the limit of processkube's tests."""

from processkube.testing.waiting import PATIENCE_SECONDS

__all__ = ["PATIENCE_SECONDS"]
