"""CustomResourceDefinitions: what they leave out, and what the real server would refuse about them.

It must not store them. Its danger: a definition taken here and refused by a real cluster.
"""
