"""The conditions of a pool's status, with named reasons, computed from what was observed.

`facts` has the inputs, `readiness`, `answers` and `degradation` compute a condition each, and `pool_conditions` joins
them. Pure; times come from the caller.
"""
