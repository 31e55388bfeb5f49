"""The base of all subjects: Postgres and its transactions, lists and pages, the audit log, callers, errors, times.

This package must not know a subject or HTTP. The danger here is the boundary of a transaction: rows that belong
together must be committed together.
"""
