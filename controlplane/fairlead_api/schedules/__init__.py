"""Schedules of pools: the values in force at a time, and the outcome of each start of a window.

This package must not start or end a window, which is the operator's task. The danger here: a start that is recorded
twice.
"""
