"""A heatmap's cells as bytes, the colours of load, and the legend that explains them.

Pure; picture, canvas, table and files use the same cells. It must not fetch data. Its danger is precision: a colour has
255 levels, so numbers are taken from exact steps and never from colours.
"""
