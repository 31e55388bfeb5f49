"""Sessions and bindings in Postgres: who holds a session, its history, its migrations.

It must not judge who wins; `fairlead.binding_races` does. Its danger: a history row without its binding, or a binding
without its history row.
"""
