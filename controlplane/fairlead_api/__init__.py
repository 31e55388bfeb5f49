"""The control API: stores what routers and the operator report, builds routing tables, answers people, audits changes.

`routes` speak HTTP. `services` hold the use cases, plans among them, and know neither FastAPI nor SQLAlchemy. `store`
holds all the SQL. `app` joins them. It must not stand in the path of a request to an engine. The danger here: a router
forgets a report once it is acknowledged, so nothing may be acknowledged before it is committed.
"""
