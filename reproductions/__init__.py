"""Reproductions: each writes a section of docs/benchmarks.md from runs of the simulator."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""The variable is set as in `fairlead_simulator`, but here, because sections import `fairlead` first, which loads
numpy. With other numbers of threads, products are rounded differently, and a run that learns takes several times the
CPU.
"""
