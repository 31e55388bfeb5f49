"""Reconciling a pool, and finalizing it: read everything, ask the core for the next actions, apply them, say
in the status what is so.

It must not watch, wait or know of kopf: `pool_worker` calls it step by step. Its danger: whatever it forgets in memory
must not change what it does.
"""
