"""Load of instances over time: samples and their rollups, heatmaps, and explanations of an instance's load.

This package must not change a sample. The danger here: reading a range from a table that is too coarse for the range.
"""
