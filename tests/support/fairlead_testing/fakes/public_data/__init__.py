"""The data that the fake public API shows: a made-up world, with a module for each noun.

It must not read a clock or draw random numbers without a fixed seed. Its danger: records that no router would report.
"""
