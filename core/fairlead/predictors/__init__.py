"""Predictors: a small neural network that learns the TTFT of a request on an instance from the results of earlier ones.

Samples, the network, its training in rounds and its exchange as bytes; numpy alone, and every draw comes from a seed
that is an argument. Which features a sample has, and what a prediction is used for, is routing's business. Its danger:
outside the range of its training data a network's answer is meaningless; `Model.within` checks for that.
"""
