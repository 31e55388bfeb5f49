"""Reports schedulers' records to the control API: in batches, kept on disk until acknowledged.

This package must not lose a record, even if a process dies or the API is away, and it must not slow requests down: it
takes records that a scheduler has handed over, encodes each once and does all file work in threads. Its danger is a
batch that the API cannot accept: such a batch must not block the others.
"""
