"""CustomResourceDefinitions: the defaults of their fields, and the faults for which the real server would refuse them.

It must not store them. Its danger: to accept a definition that a real cluster refuses.
"""
