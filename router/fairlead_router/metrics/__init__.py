"""The router's counters, and the Prometheus page that shows them.

Counting on the request path is plain arithmetic (`pool_counters`); the page's text is made at each scrape. `endings` is
the table of all ways in which a request can end, with the counter and the charge for each. This package must not hold
data that decisions depend on. Its danger is a label that a client can choose, so the values of labels are bounded.
"""
