"""Choosing: the parts from which policies are built.

Orders of preference and the record of a choice (`candidates`), dice, scorers, adaptive keys, and why a session's home
moves. None of them is a policy on its own. Its danger: a change here changes the decisions of several policies at once.
"""
