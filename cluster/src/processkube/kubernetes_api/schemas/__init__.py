"""Schemas of custom resources and of built-in kinds. They are used to check, default, prune and decode objects.

This package must not evaluate rules; `cel` does. Its danger is that it accepts a value that the real server refuses.
"""
