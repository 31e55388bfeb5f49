"""The cost of instances. This package records the lives of instances, their prices, their busy time and the usage of
requests. `fairlead.costs` divides the costs.

A *life* is the time in which a pod was an instance. Lives and prices are recorded when the operator reports a pool's
state; usage is recorded when a router reports it; busy time is recorded when load is rolled up. A job records the
prices that OpenCost measured. This package must not divide an amount itself. The danger here: a life whose end is never
recorded.
"""
