"""Simulated engines, workloads and trace replay.

From the bottom up: traces (read, described, converted); workloads (traces made from a seed); the engine model; pools of
model engines under the routers' own scheduler; experiments on such pools; one engine served over HTTP; and the replay
of a trace against a real router. Models are pure: time and randomness are arguments. The package must not contain a
copy of a routing policy, nor import any other component. Its danger: people size fleets by its figures, so a shortcut
in a model becomes a wrong purchase. Where a model deviates from a real engine, its docstring says so.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Set before numpy is imported, because numpy reads it then: with several threads, products of matrices as small as the
simulator's are slower, and their p99 is milliseconds.
"""
