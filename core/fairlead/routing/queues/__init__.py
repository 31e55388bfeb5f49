"""Queues: where requests wait for their instance, in which order they are sent, and whose counters include them
meanwhile.

A queue never chooses an instance and never sends: the scheduler takes from it. Its danger: a request that is counted
twice, or not taken out again, makes an instance look busy forever (`accounting.discrepancies` finds it).
"""
