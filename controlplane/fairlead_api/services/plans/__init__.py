"""Plan → apply → undo: the effect of a change, who else owns the object, and the change itself.

It must not change a pool in another way than the plan said. Its danger: a pool that changed between plan and apply.
"""
