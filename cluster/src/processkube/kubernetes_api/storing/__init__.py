"""The SQLite file with all objects, the forms of an object in several versions, and watches over changes.

This package must not judge what is written. Its danger is a watch that misses a change.
"""
