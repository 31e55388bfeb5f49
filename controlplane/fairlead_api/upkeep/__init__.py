"""The API's care of itself: health, metrics, and the regular jobs of one process: rollups, partitions, retention.

It must not delete a row that another one still refers to. The danger here: a partition dropped before its rollup.
"""
