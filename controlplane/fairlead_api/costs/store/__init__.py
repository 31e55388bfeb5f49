"""Costs in Postgres: records lives, prices and usage, from which costs are computed; reads them; and compares costs
with budgets.

A *life* is the time in which a pod was an instance. This package must not divide an amount. The danger here: two
simultaneous reports that add to the same hours could wait for each other forever, so all transactions lock rows in the
same order.
"""
