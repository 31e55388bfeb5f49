"""Reads the data for advice: a handful of SQL statements over all pools, and signals of the pools that miss their
objectives.
"""
