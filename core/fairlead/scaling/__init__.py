"""How many instances each role of a pool should have, decided purely.

`targets.step` joins, in this order: the declared numbers, what the SLO needs (`sizing`, `stabilization`), the ratio of
prefill to decode instances (`ratio`), bounds of open schedule windows, and the role's own bounds. What must outlive a
restart is in the memory that it takes and returns (`memory`); times come from the caller.

It must not read a clock, keep anything for itself or act. Its danger: each number it returns is money or an outage.
What it cannot measure it leaves as it is.
"""
