"""Queues: where requests wait for their instance, the order in which they are sent, and the counters that include them
while they wait.

A queue never chooses an instance and never sends a request: the scheduler takes requests from it. Its danger: a request
that is counted twice, or never removed, makes an instance look busy forever (`accounting.discrepancies` finds it).
"""
