"""The protocols of the simulated engine, one module each. A module reads requests and writes responses and streams, in
the formats observed in vLLM 0.32.

All modules pass the work itself to `fairlead_simulator.engine_server.served_instance`. `routes` has the only table of
paths.
"""
