"""Validation rules in CEL: their types, their costs, and their evaluation.

The rules of a definition are checked when the definition is created. They are evaluated when an object is written.

This package must not touch the store. Its danger is a cost estimate that differs from the real server's. Then it
accepts rules that a real cluster refuses, or refuses rules that a real cluster accepts.
"""
