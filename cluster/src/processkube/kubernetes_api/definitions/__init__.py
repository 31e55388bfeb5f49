"""CustomResourceDefinitions: the defaults of their fields, and the faults for which the real server would refuse them.

This package must not store definitions. Its danger is a definition that it accepts and a real cluster refuses.
"""
