"""Schemas, of custom resources and of built-in kinds, and their use: to check, default, prune and decode objects.

This package must not evaluate rules; `cel` does. Its danger is a value that it accepts and the real server refuses.
"""
