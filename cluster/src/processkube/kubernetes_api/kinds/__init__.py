"""The kinds that the server knows, built in and defined, and how a path finds one.

It must not read objects. Its danger: two definitions that claim one path.
"""
