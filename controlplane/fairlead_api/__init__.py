"""The control API: stores the reports of routers and the operator, builds routing tables, serves people, and audits
changes.

Each folder has one subject: its `routes` handle HTTP requests, its `store` holds the SQL, its `tables` define the
tables. All other modules contain rules, which know neither FastAPI nor SQLAlchemy. Every subject may use `http` and
`infra`, and `app` joins the subjects. Requests to engines must not depend on the API. The danger here: a router forgets
a report once the API acknowledges it, so the API must commit a report before it acknowledges it.
"""
