"""Scheduling: the scheduler of one pool, which handles a request from its submission to its end.

It calls admission and the policy, keeps the queues, updates estimates from finished requests, and writes the records
for reports. It never waits and sends nothing: it returns dispatches and refusals, and its caller carries them out. The
danger of this package: a request must leave by exactly one exit, on every path, or the pool's counters become wrong.
"""
