"""Choosing: what policies choose with.

Orders of preference and the record of a choice (`candidates`), dice, scorers, adaptive keys, and why a session's home
moves. A policy is put together from these; none of them is a policy. Its danger: a change here changes the decisions of
several policies at once.
"""
