"""Discrete-event simulation of a pool: the router's own scheduler and policies with many model engines, on a virtual
clock.

Nothing in this package decides where a request is sent. `fairlead.routing.scheduling.scheduler.PoolScheduler` decides,
and is called exactly as a router calls it. Engines advance by whole prefill batches, chunks and runs of decode steps,
so a trace of twelve thousand requests takes only a second or two. There is no wall clock and no global randomness, so a
seed gives the same numbers on every machine. The package must not contain a copy of a policy or of admission. Its
danger: people trust its results. Therefore each module and docs/simulator.md name the effects that the model leaves
out.
"""
