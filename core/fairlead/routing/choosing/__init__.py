"""Choosing: the parts from which policies are built.

The parts are orders of preference and the record of a choice (`candidates`), dice, scorers, adaptive keys, and the
causes for which a session leaves its instance. No part is a policy alone. The danger of this package: a change here
changes the decisions of several policies at once.
"""
