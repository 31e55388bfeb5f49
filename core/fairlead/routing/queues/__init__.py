"""Queues: requests wait here for their instance. Queues decide the order in which requests are sent, and count the
waiting requests.

A queue never chooses an instance and never sends a request: the scheduler takes requests from it. The danger of this
package: a request that is counted twice, or never removed, makes an instance look busy forever.
`accounting.discrepancies` finds such a request.
"""
