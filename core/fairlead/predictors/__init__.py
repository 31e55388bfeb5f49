"""Predictors: a small neural network that predicts the TTFT of a request on an instance from the results of earlier
requests.

The package contains samples, the network, its training in rounds and its exchange as bytes. It uses numpy alone, and
every random draw uses a seed that is an argument. The routing package defines the features of a sample and uses the
predictions. Outside the range of its training data, a network's answer is meaningless; `Model.within` checks for that.
"""
