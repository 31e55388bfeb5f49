"""The one SQLite file, the spellings of one object, and watches over its changes.

It must not judge what is written. Its danger: a watcher that misses a change.
"""
