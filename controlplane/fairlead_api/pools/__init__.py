"""Pools and their instances: stores the states that the operator reports, and prepares what people read about them.

It must not decide what the cluster should look like, which is the operator's task. The danger here: a late state that
replaces a newer one.
"""
