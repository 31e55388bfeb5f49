"""Measures the control API and its database with the record of a large fleet.

    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.store_at_scale [--hours 24] [--dump] [--directory DIR]

A Postgres server of its own, with fsync, is filled with 500 instances, 100,000 sessions, a million session migrations,
re-routes and decisions each, and a load sample of every instance for every second of 24 hours. Then one API process on
it is asked every path of its document with every filter, one request after the other; the statements of all of these
are explained; bindings are looked up; and reports are posted by four routers at once, to two processes. Prints each
figure beside its target and ends with code 1 when one is missed. A question that a server error answers is asked no
more and counts as endless.
"""
