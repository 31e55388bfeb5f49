"""Runs `fairlead replay` as `python -m fairlead_simulator.replay`."""

from fairlead_process.commands import run_program
from fairlead_simulator.replay.command import replay

run_program(replay, "fairlead replay")
