"""Values for tests with only what a test is about, and what must hold of real ones. It must not start anything. Its
danger: a default that hides what a test depends on.
"""
