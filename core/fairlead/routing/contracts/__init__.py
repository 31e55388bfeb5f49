"""Contracts: the types and protocols that policies, queues, admission and the scheduler share.

They cover requests, loads, decisions, policies, schedulers and the parameters of policies. This package makes no
decisions. The danger of this package: every other package of routing imports it, so a new type or import here is a cost
for all of them.
"""
