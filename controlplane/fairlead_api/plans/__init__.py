"""Plans: previewing the effect of a change, finding the tool that owns the object, and applying and undoing the change.

This package must not change a pool in any way that the plan did not show. The danger here: a pool that changes between
plan and apply.
"""
