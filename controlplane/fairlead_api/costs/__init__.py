"""What instances cost: their recorded lives, prices and busy time, and what requests used, divided by `fairlead.costs`.

A life is the time in which a pod was an instance. Lives and prices are noted with the pool's state, use with the
router's report, busy time with the rollup of load, and prices that OpenCost measured by a job. This package must not
divide an amount itself. The danger here: a life that nobody ends.
"""
