"""Choosing: the parts from which policies are built.

Orders of preference and the record of a choice (`candidates`), dice, scorers, adaptive keys, and the causes for which a
session leaves its home instance. None of these parts is a policy on its own. Its danger: a change here changes the
decisions of several policies at once.
"""
