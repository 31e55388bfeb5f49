"""Parts of Fairlead in virtual time, in simulated surroundings: clusters, engines, routers, databases.

They must not read a real clock. Their danger: surroundings that fail less often than real ones.
"""
