"""Measures the web UI in front of a large pool and many viewers, against its budgets.

    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.web_budgets [--times 20] [--minutes 10] [--only ttfb …]

A Postgres server of its own, in memory where there is room, has an hour of a pool of 512 instances. One process serves
API and web UI on it. Two routers report to it five times a second, and an operator reports the pool's state. Then:

- ttfb: every page is requested, first alone, then while 50 people watch pages, each with a session and an event stream;
- weight: every page is opened in Chromium for the first time, and its bytes, nodes and largest paint are counted;
- heatmap: 512 × 360 cells are drawn, several times;
- live: three pages stay open in Chromium; their tasks are timed, and their heap is measured after garbage collections;
- events: a change is reported, and the time until an open page shows it is measured, without and with the 50 viewers.

Prints each figure beside its target, and ends with code 1 if a target is missed. Chromium, the viewers and the routers
share the machine with the server, so figures of a machine with few cores are worse than those of people in production.
"""
