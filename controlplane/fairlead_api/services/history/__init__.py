"""Reads of the record: filters and times as people write them, heatmaps, series, objectives, reasons.

It must not change the record. The danger here: a range or filter that silently hides rows.
"""
