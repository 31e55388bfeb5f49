"""The decision core of Fairlead.

This package contains all code that decides, and no code that acts. Pool specs, instance states, routing, admission,
draining and reconciling are functions and small objects. They take observations, a clock reading and (where needed) a
random source, and return values with reasons. The package imports only the standard library, numpy and xxhash; it does
no I/O, reads no clock and logs nothing. The router, the operator, the control API and the simulator use the same
objects, so each rule exists once. This code runs in the request path of every deployment, so it must stay pure, total
and cheap.
"""
