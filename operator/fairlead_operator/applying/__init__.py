"""Changing the cluster: instances, Service, PodDisruptionBudget. Each call is idempotent; what is refused is
named and retried later.

It must not decide what is wanted. Its danger: it deletes pods, so it does only what an action says, and
touches no object of others.
"""
