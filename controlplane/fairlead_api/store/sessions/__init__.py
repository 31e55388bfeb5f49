"""Sessions and bindings in Postgres: the instance that holds a session, its history, its migrations.

It must not judge which router wins a race; `fairlead.binding_races` does. The danger here: a history row without its
binding, or a binding without its history row.
"""
