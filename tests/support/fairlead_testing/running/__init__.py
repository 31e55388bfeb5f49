"""Real processes, servers, databases and browsers for tests.

They must end what they start. Their danger: a port or process left behind.
"""
