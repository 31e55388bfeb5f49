"""Webhooks: notices of events of pools, written in the transaction of the reported change, and posted to receivers.

It must not show an address beyond its origin, a secret, or any part of a receiver's answer. The danger here: a request
that this process makes for somebody else, to an address that only this process can reach.
"""
