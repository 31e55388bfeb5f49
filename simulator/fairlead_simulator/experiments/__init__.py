"""Experiments: a trace is planned at several rates and run through simulated pools with several policies; the results
are measured and shown.

A cell is one combination of policy, rate, early rejection mode and seed. Cells share nothing and may run in several
processes. The package must not decide anything about routing or engines. Its danger is figures that compare different
requests; measured requests are therefore selected by index.
"""
