"""Queues: where requests wait for their instance, the order in which they are sent, and the counters that include them
while they wait.

A queue never chooses an instance and never sends: the scheduler takes from it. Its danger: a request that is counted
twice, or never taken out, makes an instance look busy forever (`accounting.discrepancies` finds it).
"""
