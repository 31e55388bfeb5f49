"""Reconciles and finalizes a pool: reads everything, asks the core for actions, applies them, writes the status.

The package must not watch, wait or depend on kopf; `pool_worker` calls it step by step. The danger: the package keeps
values in memory to save calls, but no decision may depend on them. If the memory is lost, the same decisions must
follow.
"""
