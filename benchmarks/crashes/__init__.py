"""Kills and pauses Postgres and the control API during reports and plans, and checks that nothing was lost or doubled.

    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.crashes [--reports 50000] [--rate 500] [--pause 20]

Four reporting processes, each with a router's own spool, lanes and client, send reports to two API processes on a
Postgres with fsync. Meanwhile plans are made, applied and undone against the sandbox's Kubernetes API. Postgres and
each API process are killed with SIGKILL, and paused, in turn. At the end, every record that was written to a router's
disk must be stored exactly once, every plan must be applied completely or not at all, and the stored record must not
contradict itself. Prints the findings, and ends with code 1 if a promise was not kept.
"""
