"""Measures the control API and its database with the record of a large fleet.

    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.store_at_scale [--hours 24] [--dump] [--directory DIR]

A Postgres server of its own, with fsync, is filled with 500 instances, 100,000 sessions, a million each of session
migrations, re-routes and decisions, and a load sample of every instance for every second of 24 hours. Then every path
of the API's document is requested with every filter, from one API process, one request after the other. The plans of
all statements are checked, bindings are looked up, and four routers post reports to two processes at once. Prints each
figure beside its target, and ends with code 1 if a target is missed. A request that gets a server error is not
repeated, and its time counts as infinite.
"""
