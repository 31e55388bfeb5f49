"""Scheduling: the scheduler of one pool, from a submitted request to its end.

It asks admission and the policy, keeps the queues, learns from finished requests, and writes the records that are
reported. It waits for nothing and sends nothing itself: it returns dispatches and refusals, and its caller carries them
out. Its danger: a request must leave by exactly one exit, on every path, or the pool's counters drift.
"""
