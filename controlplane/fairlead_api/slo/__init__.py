"""Objectives of pools: their versions, attainment, error budgets, and the effect that other targets would have had.

It must not mix versions of an objective. The danger here: an attainment that looks certain but covers too few requests.
"""
