"""How many instances each role of a pool should have, as pure decisions.

`targets.step` joins, in this order: the declared numbers, the needs of the SLO (`sizing`, `stabilization`), the ratio
of prefill to decode instances (`ratio`), bounds of open schedule windows, and the role's own bounds. State that must
outlive a restart is in the memory that `step` takes and returns (`memory`); times come from the caller.

The package must not read a clock, keep state or act. The danger: each number that it returns is money or an outage. A
role that cannot be measured keeps its number.
"""
