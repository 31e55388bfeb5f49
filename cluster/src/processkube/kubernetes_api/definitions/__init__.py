"""CustomResourceDefinitions: the defaults of their fields, and the faults for which the real server refuses them.

This package must not store definitions. Its danger is that it accepts a definition that a real cluster refuses.
"""
