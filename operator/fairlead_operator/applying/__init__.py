"""Changes the cluster: instances, Service, PodDisruptionBudget.

Each call is idempotent; a refused call is reported and tried again later. This package carries out decisions and makes
none. The danger: the package deletes pods, so it makes only the change that an action names, and touches no object of
another owner.
"""
