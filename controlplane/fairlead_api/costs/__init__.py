"""What instances cost: their lives, prices and busy time as they are recorded, and what requests used of them, divided
by `fairlead.costs`.

Lives and prices are noted with the pool's state, use with the router's report, busy time with the rollup of load, and
prices that OpenCost measured by a job. It
must not divide an amount itself. The danger here: a life that nobody ends.
"""
