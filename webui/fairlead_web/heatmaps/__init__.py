"""A heatmap's cells as bytes, the colours of load, and the legend that explains the colours.

Pure; picture, canvas, table and files use the same cells. This package must not fetch data. The danger here is
precision: a colour has only 255 levels. Therefore a number is never computed back from a colour. Each number is stored
separately, as a multiple of the smallest difference that is shown for its unit (its exact step).
"""
