"""Canaries: the steps of rollouts, the measured requests of each step, and the verdicts about the steps.

This package judges the steps, and the operator acts on the verdicts. The danger here: a verdict about a step that is no
longer in force.
"""
