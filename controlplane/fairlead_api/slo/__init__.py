"""Objectives of pools: their versions, attainment, error budgets, and the attainment under other targets.

This package must not mix versions of an objective. The danger here: an attainment that looks certain but covers too few
requests.
"""
