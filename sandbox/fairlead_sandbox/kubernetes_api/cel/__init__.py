"""Validation rules in CEL: their types and costs when a definition is made, their verdict when an object is written.

It must not touch the store. Its danger: a rule that costs more here or there; the real estimates are kept.
"""
