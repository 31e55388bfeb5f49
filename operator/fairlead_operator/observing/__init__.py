"""Reads the documents of the cluster. Pure: nothing here calls the cluster. Its danger: annotations are edited by hand,
so nothing in them is trusted.
"""
