"""`fairlead backup` and `fairlead restore`: one file with the database, and with those objects of the cluster that
exist nowhere else.

The dump is made and read by PostgreSQL's own tools. A file that was cut short has no manifest and is refused; a restore
is one transaction, so a database gets all of a backup or nothing.
"""
