"""The API's own upkeep: health, metrics, and the periodic jobs that exactly one process runs: rollups, partitions,
retention.

It must not delete a row that another row still references. The danger here: dropping a partition before its rollup.
"""
