"""Webhooks: notices of events of pools, written in the transaction of the reported change, and posted to receivers.

This package must not show a secret, any part of a receiver's response, or more of a receiver's address than its origin.
The danger here: a request that this process makes for somebody else, to an address that only this process can reach.
"""
