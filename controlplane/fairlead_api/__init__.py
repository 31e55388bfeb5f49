"""The control API: stores what routers and the operator report, builds routing tables, answers people, audits changes.

A folder is a subject: its `routes` speak HTTP, its `store` holds its SQL, its `tables` the tables; all else in it are
rules, which know neither FastAPI nor SQLAlchemy. Subjects stand on `http` and `infra`, and `app` joins them. The API
must not stand in the path of a request to an engine. The danger here: a router forgets a report once it is
acknowledged, so nothing may be acknowledged before it is committed.
"""
