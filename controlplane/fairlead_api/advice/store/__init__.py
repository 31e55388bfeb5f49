"""Reads the data for advice. A few SQL statements read the facts of all pools; further statements read the signals of
the pools that miss their objectives.
"""
