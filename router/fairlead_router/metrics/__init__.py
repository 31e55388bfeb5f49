"""What the router counts, and the Prometheus page made of it.

Counting on the request path is plain arithmetic (`pool_counters`); a scrape makes the text. `endings` is the table of
all ways in which a request can end, with what each is counted as and charged. It must not hold what decisions depend
on. Its danger is a label that a client can choose: labels are bounded.
"""
