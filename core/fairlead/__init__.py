"""The decision core of Fairlead.

Everything that decides lives here and nothing that acts: pool specs, instance states, routing, admission, draining
and reconciling are functions and small objects that take observations, a clock reading and (where needed) a random
source, and return values with reasons. The package imports only the standard library, numpy and xxhash; it never does
I/O, reads no clock, logs nothing. The same objects run in the router, the operator, the control API and the
simulator, so a rule exists once. Its danger: whatever is added here runs in the request path of every deployment, so
it must stay pure, total and cheap.
"""
