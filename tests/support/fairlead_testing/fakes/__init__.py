"""Stand-ins for the other side of a seam, in memory or on loopback.

They must not be cleverer than their originals. Their danger: their behaviour drifts away from the originals'.
"""
