"""Pools, instances and their history in Postgres: written as the operator reports them, read as the public API shows
them.

It must not hold a transaction open while anything but Postgres is awaited. Its danger: two writers of one pool;
its row is locked first.
"""
