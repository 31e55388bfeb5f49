"""How long tests wait for what other tasks and processes bring about."""

PATIENCE_SECONDS = 240.0
"""Longest wait where how soon something comes is not the claim: a busy machine may be tens of times slower than a
quiet one.
"""
