"""Webhooks: notices of what happens to pools, written in the transaction of what they report, and posted to receivers.

It must not show an address beyond its origin, a secret, or any of a receiver's answer. The danger here: a request that
this process makes for somebody else, to an address that only this process can reach.
"""
