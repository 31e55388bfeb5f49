"""A heatmap's cells as bytes, the colours of load, and the legend that explains the colours.

Pure; picture, canvas, table and files use the same cells. This package must not fetch data. The danger here is
precision: a colour has only 255 levels. Therefore numbers are taken from exact steps, and never from colours.
"""
