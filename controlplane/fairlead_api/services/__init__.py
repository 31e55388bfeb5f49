"""Use cases of the control API, and the Protocols of what they need (stores, the cluster).

No FastAPI, no SQLAlchemy: a service is called by routes and given its stores by `app`. What can be pure is
pure and takes its clock.
"""
