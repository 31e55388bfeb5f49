"""Contracts: the types and protocols that policies, queues, admission and the scheduler share.

Requests, loads, decisions, policies, schedulers and the parameters of policies. Nothing here decides anything. Its
danger: every other package of routing imports this one, so a type added here is a promise to all of them, and an import
added here is paid by all of them.
"""
