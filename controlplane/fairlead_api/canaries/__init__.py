"""Canaries: the steps of rollouts, what their sessions were like, and the verdicts about them.

It judges, and the operator acts. The danger here: a verdict about another step than the one in force.
"""
