"""Timeouts for tests that wait for other tasks and processes."""

PATIENCE_SECONDS = 240.0
"""Maximum seconds to wait in a test that does not check how soon something happens. It is long, because a busy machine
may be tens of times slower than a quiet one.
"""
