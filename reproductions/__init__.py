"""Reproductions: the sections of docs/benchmarks.md, each from runs of the simulator."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""As `fairlead_simulator` has it, and here since sections import `fairlead` first, with which numpy is loaded: with
other threads, products are rounded otherwise and a run that learns takes several times the CPU.
"""
