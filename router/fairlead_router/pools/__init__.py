"""The pools of this router: their tables, schedulers, accounts of requests, and facts about engines.

`pools` finds a pool, `pool` has the class of a pool, and `account` has its requests. `table_stream` receives tables,
bindings and keys from the control API, and `table_cache` keeps them on disk. `engine_metrics`, `engine_lives` and
`kv_event_following` observe engines independently of requests. This package must not know how requests arrive or how
they are sent. Its danger is a count that one code path increases and no code path decreases.
"""
