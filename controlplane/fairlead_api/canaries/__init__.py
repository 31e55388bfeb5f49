"""Canaries: the steps of rollouts, the measurements of their sessions, and the verdicts about the steps.

It judges, and the operator acts. The danger here: a verdict about another step than the one in force.
"""
