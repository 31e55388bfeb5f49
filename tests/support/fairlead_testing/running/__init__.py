"""Real processes, servers, databases and browsers for tests.

Every starter must end its processes. Their danger: a port or a process that is left behind.
"""
