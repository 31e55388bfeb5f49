"""Simulated engines, workloads and trace replay.

The layers, from the lowest to the highest: traces (read, described, converted); workloads (traces generated from a
seed); the engine model; the simulation of a pool of such engines with the router's own scheduler; experiments, which
compare simulated pools; the engine server, which serves one model engine over HTTP; and the replay of a trace against a
real router. Models are pure: time and randomness are arguments. The package must not contain a copy of a routing
policy, nor import any other component.

The danger of this package: people buy hardware according to its figures, so an error in a model becomes a wrong
purchase. Where a model deviates from a real engine, its docstring says so.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Set before numpy is imported, because numpy reads it then: with several threads, products of matrices as small as the
simulator's are slower, and their p99 is milliseconds.
"""
