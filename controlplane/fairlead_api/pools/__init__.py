"""Pools and their instances: takes the states that the operator reports, and prepares what people read about them.

It must not decide what the cluster should look like; the operator does. The danger here: a state that arrives late and
would replace a newer one.
"""
