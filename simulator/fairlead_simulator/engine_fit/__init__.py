"""Fits the engine model's costs to requests that real engines served, and measures the fit's error.

Each record describes one served request. `engine_model.Instance` replays every record: the request arrives at the
recorded time, on the recorded engine, with the recorded number of cached tokens. The fit chooses the costs with which
the replay reproduces the recorded latencies best. It reads no clock and draws no random numbers. Its danger is a fit
that matches only the records it was made from. Therefore the error that is reported is measured on later records.
"""
