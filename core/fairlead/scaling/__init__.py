"""How many instances each role of a pool should have, decided purely.

`targets.step` joins, in this order: the declared numbers, what the SLO needs (`sizing`, `stabilization`), the ratio of
prefill to decode instances (`ratio`), bounds of open schedule windows, and the role's own bounds. State that must
outlive a restart is in the memory that it takes and returns (`memory`); times come from the caller.

It must not read a clock, keep state or act. Its danger: each number it returns is money or an outage. A role that
cannot be measured keeps its number.
"""
