"""Test requests of people to a pool. They are sent to a router like any client's requests, and nothing of them is
stored here.

The danger here: the control API becomes a client. It sends only what a person with the role operator typed, only to the
address of `FAIRLEAD_GATEWAY_URL`, and follows no redirect.
"""
