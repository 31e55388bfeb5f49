"""Contracts: the types and protocols that policies, queues, admission and the scheduler share.

They cover requests, loads, decisions, policies, schedulers and the parameters of policies. Nothing here decides
anything. Its danger: every other package of routing imports this one, so they all depend on every type defined here and
pay for every import.
"""
