"""Validation rules in CEL: their types and costs, and their evaluation.

A rule is checked when its definition is created, and evaluated when an object is written.

This package must not touch the store. Its danger is a cost estimate that differs from the real server's, so that it
accepts a rule that a real cluster refuses, or refuses one that a real cluster accepts.
"""
