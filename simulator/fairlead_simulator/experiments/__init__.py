"""Experiments: a trace is planned at several rates and run through simulated pools with several policies; then the
results are measured and shown.

A cell is one combination of policy, rate, early rejection mode and seed. Cells share nothing, so several processes can
run them. The package must not decide anything about routing or engines. Its danger is figures that compare policies on
different requests. Therefore the measured requests are selected by their index.
"""
