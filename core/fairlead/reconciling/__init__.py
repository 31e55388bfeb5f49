"""Brings a pool's pods to the desired state, by pure decisions over observations.

`next_actions` compares the desired state with the observed state, considers the requests that routers still have on the
instances, and returns the actions to take now. A drain that a person asks for begins in `requested_drains`; every drain
ends in `next_actions`, or in `flips` if the pod changes its role, once `fairlead.draining` finds the instance empty or
the drain timeout has passed. The package has no memory: after a crash, a lost answer or a repeated call it makes the
same plan again. It must not talk to a cluster, read a clock or use random numbers. An error in this package can delete
pods in production, because every pod that Fairlead deletes is deleted by a decision made here.
"""
