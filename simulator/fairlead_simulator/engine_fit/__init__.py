"""Fits the engine model's costs to requests that real engines served, and measures the fit's error.

The records are replayed through `engine_model.Instance` at their times, on their engines and with their cached tokens.
The fit chooses the costs that reproduce the recorded times best. It reads no clock and draws no random numbers. Its
danger is a fit that matches only the records it was made from. So the fit is compared with later records, and its
errors on those are reported.
"""
