"""The kinds that the server knows, built-in and defined by users, and the kind to which a path leads.

This package must not read objects. Its danger is two definitions with the same path.
"""
