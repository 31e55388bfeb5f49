"""Sessions and bindings: the instance that holds a session, the instances that held it before, and how reports change
bindings.

This package must not decide which router's change of a binding wins, because that is the task of
`fairlead.binding_races`. The danger here: a history row without its binding, or a binding without its history row.
"""
