"""Reads of the record: filters and times as people write them, heatmaps, advice.

It must not change the record. The danger here: a range or filter that silently hides rows.
"""
