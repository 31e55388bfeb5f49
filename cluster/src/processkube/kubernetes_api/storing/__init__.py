"""The one SQLite file, the forms of one object in several versions, and watches over changes.

This package must not judge what is written. Its danger is a watcher that misses a change.
"""
