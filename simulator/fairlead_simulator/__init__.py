"""Simulated engines, workloads and trace replay.

A discrete-event model of a vLLM-like engine, the same model served over HTTP as `python -m fairlead_simulator.engine_server`, traces in
Mooncake's format (read, described, generated) and their replay against a real router as `fairlead replay`. Models are pure: time and
randomness are arguments. It must not hold its own copy of a routing policy, nor import any other component. Its danger: people size
fleets by its figures, so a shortcut here becomes a wrong purchase; where the model deviates from a real engine its docstring says so.
"""
