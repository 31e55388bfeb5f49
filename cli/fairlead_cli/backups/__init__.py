"""`fairlead backup` and `fairlead restore`: the database, and of the cluster what nobody else keeps, in one file.

The dump is made and read by PostgreSQL's own tools. A file that was cut short has no manifest and is refused; a restore
is one transaction, so a database has all of a backup or nothing.
"""
