"""Use cases of the control API, and the Protocols of their dependencies (stores, the cluster).

They use neither FastAPI nor SQLAlchemy: routes call a service, and `app` gives it its stores. Code is pure where it
can be, and takes the time as an argument.
"""
