"""Pools and their instances: stores the states that the operator reports, and prepares the views of pools for people.

This package must not decide what the cluster should look like, which is the operator's task. The danger here: a late
report of a state that replaces a newer state.
"""
