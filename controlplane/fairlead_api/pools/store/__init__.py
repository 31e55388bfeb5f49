"""Pools, instances and their history in Postgres.

They are written as the operator reports them and read as the public API shows them. It must not hold a transaction open
while it awaits anything but Postgres. The danger here: two writers of one pool; so the pool's row is locked first.
"""
