"""The API's own upkeep: health, metrics, and the periodic jobs that exactly one process runs: rollups, partitions,
retention.

This package must not delete a row that another row still references. The danger here: dropping a partition before its
rows were rolled up.
"""
