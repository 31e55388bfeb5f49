"""Pools, instances and their history in Postgres.

The operator's reports are written, and the public API's resources are read. It must not hold a transaction open while
it awaits anything but Postgres. The danger here: two writers of one pool; so the pool's row is locked first.
"""
