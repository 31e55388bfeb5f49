"""`python -m fairlead_simulator.replay`, the same as `fairlead replay`."""

from fairlead_simulator.replay.command import replay

replay.main(prog_name="fairlead replay")
