"""Decides how many instances each role of a pool should have. Pure.

`targets.step` joins, in this order: the declared numbers, the needs of the SLO (`sizing`, `stabilization`), the ratio
of prefill to decode instances (`ratio`), bounds of open schedule windows, and the role's own bounds. State that must
outlive a restart is in the memory that `step` takes and returns (`memory`); times come from the caller.

This package reads no clock, keeps no state and changes nothing. A wrong number of instances costs money or causes an
outage, so a role that cannot be measured keeps its number.
"""
