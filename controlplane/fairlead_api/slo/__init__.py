"""Objectives of pools: their versions, how they were kept, error budgets, and what other targets would have meant.

It must not mix versions of an objective. The danger here: an attainment of too few requests that looks certain.
"""
