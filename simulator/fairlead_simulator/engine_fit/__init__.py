"""Fits the engine model's costs to requests that real engines served, and measures the fit's error.

The records are replayed through `engine_model.Instance` at their times, on their engines, with what was cached; the
costs are those whose times come nearest to the recorded ones. It reads no clock and draws no random numbers. Its
danger: a fit that follows its own records; so it is judged by later ones, and those figures are shown.
"""
