"""Regular work of one API process: rollups, partitions, retention, ended sessions.

It must not delete a row that another one still refers to. The danger here: a partition dropped before its rollup.
"""
