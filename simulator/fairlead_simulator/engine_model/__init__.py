"""The only model of a vLLM-like engine: memory, prefix cache, scheduling, and the costs of steps, in virtual time.

`fairlead simulate` runs many of these engines on one virtual clock; `fairlead engine` runs one of them in real time and
serves it over HTTP. The model must not read a clock, draw random numbers, or know of routing and HTTP. The danger of
this package: people size fleets by its results. Each module names the effects that it leaves out.
"""
