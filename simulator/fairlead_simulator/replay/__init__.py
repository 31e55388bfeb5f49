"""Replay of a trace as real requests against routers or engines, and the accounting of their answers.

Open loop: arrivals follow the trace's clock whether or not answers keep up, as real users do. Every request sent ends
in exactly one of served, rejected, failed or cancelled. The package must know nothing of routing beyond HTTP, and must
cost little, as it often shares the machine with what it measures. Its danger: a load generator that lags behind its
schedule measures itself; therefore it reports its own lag.
"""
