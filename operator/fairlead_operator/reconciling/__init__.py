"""Reconciles and finalizes a pool: reads everything, asks the core for actions, applies them, writes the status.

It must not watch, wait or depend on kopf: `pool_worker` calls it step by step. Its danger: losing what it keeps in
memory must not change what it does.
"""
