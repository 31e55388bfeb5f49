"""Parts of Fairlead on virtual time, within a simulated environment.

They must not read a real clock. Their danger: an environment that is kinder than the real one.
"""
