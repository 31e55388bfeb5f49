"""The one SQLite file, the forms of one object in several versions, and watches over changes.

It must not judge what is written. Its danger: a watcher that misses a change.
"""
