"""The conditions of a pool's status, with named reasons, computed from observations.

`facts` has the inputs, `readiness`, `answers` and `pool_conditions` compute the conditions, and `pool_conditions` also
joins them. Pure; times come from the caller.
"""
