"""Discrete-event simulation of a pool: the router's own scheduler and policies against many model engines, on a virtual
clock.

Nothing here decides where a request goes: `fairlead.routing.scheduling.scheduler.PoolScheduler` decides, and is driven
exactly as a router drives it. Engines are modelled at the grain of prefill batches, chunks and runs of decode steps, so
a trace of twelve thousand requests takes a second or two. There is no wall clock and no global randomness: a seed gives
the same numbers on any machine. The package must not grow its own copy of a policy or of admission. Its danger: people
believe its results. Each module, and docs/simulator.md, says what the model leaves out.
"""
