"""Kills and pauses Postgres and the control API while reports arrive and plans are made, and checks that nothing was
lost or stored twice.

    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.crashes [--reports 50000] [--rate 500] [--pause 20]

Four reporting processes, each with a router's own spool, lanes and client, send reports to two API processes on a
Postgres with fsync. Meanwhile plans are made, applied and undone against the sandbox's Kubernetes API. Postgres and
each API process are killed with SIGKILL, and paused, in turn. Three promises are checked at the end: every record that
was written to a router's disk is stored exactly once; every plan is applied completely or not at all; and the stored
record does not contradict itself. Prints the findings, and ends with code 1 if a promise was not kept.
"""
