"""Schedules of pools: the values in force at an instant, and the outcome of each start.

It must not start or end a window, which is the operator's task. The danger here: a start that is recorded twice.
"""
