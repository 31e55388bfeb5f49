"""Load of instances over time: samples and their rollups, heatmaps, and explanations of an instance's load.

It must not change a sample. The danger here: reading a range from a table that is too coarse for it.
"""
