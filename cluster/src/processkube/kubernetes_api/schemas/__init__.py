"""Schemas, of custom resources and of built-in kinds, and their use: to check, default, prune and decode objects.

It must not evaluate rules; `cel` does. Its danger: to accept a value that the real server refuses.
"""
