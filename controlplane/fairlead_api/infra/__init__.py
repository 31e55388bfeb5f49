"""What all subjects stand on: Postgres and its transactions, lists and pages, the audit log, callers, errors, times.

It must not know a subject or HTTP. The danger here is the edge of a transaction: what belongs together is stored
together, or not at all.
"""
