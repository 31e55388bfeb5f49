"""Timeouts of tests that wait for other tasks and processes."""

PATIENCE_SECONDS = 240.0
"""Longest wait in seconds where the test does not assert how soon something happens: a busy machine may be tens of
times slower than a quiet one.
"""
