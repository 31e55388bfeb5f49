"""Schemas and what they do to an object: check, default, prune, decode. Structural schemas of custom resources, and
those of built-in kinds.

It must not evaluate rules; `cel` does. Its danger: a value taken here that the real server refuses.
"""
