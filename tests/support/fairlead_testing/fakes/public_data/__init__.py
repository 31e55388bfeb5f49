"""What the fake public API shows: a made-up world, by noun.

It must not read a clock or draw without a fixed seed. Its danger: records that no router would report.
"""
