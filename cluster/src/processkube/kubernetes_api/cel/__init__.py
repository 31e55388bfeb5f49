"""Validation rules in CEL: their types and costs, and their evaluation.

A rule is checked when its definition is created, and evaluated when an object is written.

It must not touch the store. Its danger: to estimate other costs than the real server and so take a rule that a real
cluster refuses, or refuse one that it takes.
"""
