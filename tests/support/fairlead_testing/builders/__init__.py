"""Builds values for tests, which name only the fields they are about, and checks real values.

It must not start anything. Its danger: a default that hides a value that a test depends on.
"""
