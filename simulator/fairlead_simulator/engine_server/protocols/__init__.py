"""The protocols that the simulated engine implements, one module each: they read requests, and write responses and
streams, in the formats observed in vLLM 0.32.

All pass their work to `fairlead_simulator.engine_server.generating`. `routes` is the only table of paths.
"""
