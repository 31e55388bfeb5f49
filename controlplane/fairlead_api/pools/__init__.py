"""Pools and their instances: stores the states that the operator reports, and prepares what people read about them.

It must not decide what the cluster should look like; the operator does. The danger here: a late state that replaces a
newer one.
"""
