"""Brings a pool's pods to what its spec wants, by pure decisions over observations.

`next_actions` compares the desired state with the observed one, considers what the routers still do, and returns the
actions to take now. A drain that a person asks for begins in `requested_drains`; every drain ends in `next_actions`, or
`flips` if its pod changes its role, when `fairlead.draining` finds the instance empty or at its timeout. The package
has no memory: after a crash, a lost answer or a repeated call it makes the same plan again. It must not talk to a
cluster, read a clock or use random numbers. The danger here: every pod that Fairlead deletes in production is deleted
because of a line in this package.
"""
