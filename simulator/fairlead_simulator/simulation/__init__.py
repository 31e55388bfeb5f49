"""Discrete-event simulation of a pool: the router's own scheduler and policies against many model engines, on a virtual
clock.

Nothing here decides where a request goes: `fairlead.routing.scheduling.scheduler.PoolScheduler` does, driven exactly as
a router drives it. Engines are modelled at the grain of prefill batches, chunks and runs of decode steps, so a trace of
twelve thousand requests takes a second or two. No wall clock, no global randomness: a seed gives the same numbers
anywhere. It must not grow its own copy of a policy or of admission. Its danger: it is believed. What the model leaves
out is written where it is left out, and in docs/simulator.md.
"""
