"""What one API process does once in a while: rollups, partitions, retention, ended sessions.

It must not delete what something else still refers to. Its danger: a partition dropped before its rollup.
"""
