"""Stand-ins for the other side of a seam, in memory or on loopback.

They must not be cleverer than the real thing. Their danger: drifting from it.
"""
