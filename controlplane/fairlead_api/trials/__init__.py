"""Test requests of people to a pool: sent to a router as any client's, and nothing of them is stored here.

The danger here: the control API becomes a client. It sends only what a person with the role operator typed, to the one
address of `FAIRLEAD_GATEWAY_URL`, and follows no redirect.
"""
