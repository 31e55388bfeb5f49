"""Load of instances over time: samples and their rollups, heatmaps, and why an instance was loaded as it was.

It must not change a sample. The danger here: a range that is read from a record too coarse for it.
"""
