"""The control API: persists what routers and the operator report, builds routing tables, answers people,
plans and audits changes.

`routes` speak HTTP, `services` hold the use cases and know neither FastAPI nor SQLAlchemy, `store` is the only SQL;
`app` joins them. It must not stand in the path of a request to an engine. Its danger: an acknowledged report is
forgotten by the router that sent it, so nothing may be acknowledged before it is committed.
"""
