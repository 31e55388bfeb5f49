"""Taking what routers report, and judging whether it can be stored.

It must not refuse a whole report for one bad row. Its danger: storing a report twice, or a row that never happened.
"""
