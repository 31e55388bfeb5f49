"""Replay of a trace as real requests against routers or engines, with an account of every response.

The replay is an open loop: requests are sent at the times of the trace, even if responses are slow, like the requests
of real users. Every sent request ends in exactly one way: served, rejected, failed or cancelled. The package must know
nothing of routing beyond HTTP. It must use little CPU time, because it often shares the machine with the router that it
measures. Its danger: a load generator that falls behind its schedule measures its own delay, not the router's.
Therefore it reports this delay.
"""
