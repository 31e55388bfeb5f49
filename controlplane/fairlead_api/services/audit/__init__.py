"""The audit log's hash chain.

It must not read a clock or a database. The danger here: a changed hash rule would make every older log look forged.
"""
