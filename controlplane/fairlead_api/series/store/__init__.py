"""Reads the data of series and figures: loads, latencies, refusals, moves, and the values in force."""
