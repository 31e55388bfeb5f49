"""Runs the simulated engine as `python -m fairlead_simulator.engine_server`."""

from fairlead_simulator.engine_server.command import main

main()
