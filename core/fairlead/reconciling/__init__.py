"""Bringing a pool's pods to what its spec wants: pure decisions over observations.

`plan` looks at what is desired, what is observed and what the routers still do, and answers the actions to take
now. It keeps no memory: a crash, a lost answer or a repeated call can only lead to the same plan again. It must not
talk to a cluster, read a clock or make names. Its danger: every pod that is deleted in production is deleted
because of a line in here.
"""
