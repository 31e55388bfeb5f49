"""Costs in Postgres: records the lives, prices and use that costs are computed from, reads them, and compares costs
with budgets.

It must not divide an amount. The danger here: two reports that add to the same hour, so rows are locked in one order.
"""
