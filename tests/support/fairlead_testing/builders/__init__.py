"""Builds values for tests, and checks values of the product. A test names only the fields that it is about.

It must not start anything. Its danger: a default that hides a value that a test depends on.
"""
