"""Costs in Postgres: what they are computed from is recorded, read and compared with budgets.

It must not divide an amount. The danger here: two reports that add to the same hour, so rows are locked in one order.
"""
