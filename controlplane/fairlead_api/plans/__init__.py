"""Plans: the predicted effect of a change, the tool that owns the object, and applying and undoing the change.

It must not change a pool in any way that the plan did not show. The danger here: a pool that changes between plan and
apply.
"""
