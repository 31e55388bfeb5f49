"""Changes the cluster: instances, Service, PodDisruptionBudget.

Each call is idempotent; a refused call is reported and tried again later. This package must not decide what is wanted.
The danger: the package deletes pods, so it does only what an action says, and touches no object of another owner.
"""
