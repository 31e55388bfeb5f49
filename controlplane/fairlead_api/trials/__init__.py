"""Test requests that people send to a pool. They go to a router like any client's requests, and the control API stores
nothing of them.

The danger: the control API becomes a client. Therefore it sends only what a person with the role operator typed, only
to the address of `FAIRLEAD_GATEWAY_URL`, and follows no redirect.
"""
