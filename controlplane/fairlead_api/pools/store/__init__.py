"""Pools, instances and their history in Postgres.

Writes the operator's reports, and reads the public API's resources. This package must not hold a transaction open while
it awaits anything but Postgres. The danger here: two writers of one pool at once, so the pool's row is locked first.
"""
