"""The single model of a vLLM-like engine: memory, prefix cache, scheduling and costs of steps, in virtual time.

`fairlead simulate` runs many of these engines on one clock; `fairlead engine` runs one against the wall clock behind
HTTP. The model must not read a clock, draw random numbers, or know of routing and HTTP. Its danger: people size fleets
by its results. Each module names the effects that it leaves out.
"""
