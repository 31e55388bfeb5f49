"""The kinds that the server knows, built in and defined, and how a path finds its kind.

This package must not read objects. Its danger is two definitions that claim one path.
"""
