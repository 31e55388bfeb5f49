"""Reading the record: filters and times as people write them, heatmaps, advice.

It must not change the record. Its danger: a range or filter that silently hides rows.
"""
