"""Replay of a trace as real requests against routers or engines, with an account of every response.

Open loop: requests are sent at the times of the trace, even if responses are slow, like requests of real users. Every
request sent ends in exactly one of served, rejected, failed or cancelled. The package must know nothing of routing
beyond HTTP, and must use little CPU time, because it often shares the machine with what it measures. Its danger: a load
generator that is behind its schedule measures itself; therefore it reports its own delay.
"""
