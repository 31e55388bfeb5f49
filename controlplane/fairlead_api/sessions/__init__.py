"""Sessions and bindings: the instance that holds a session, the instances that held it before, and how reports change
both.

It must not judge which router wins a race; `fairlead.binding_races` does. The danger here: a history row without its
binding, or a binding without its history row.
"""
