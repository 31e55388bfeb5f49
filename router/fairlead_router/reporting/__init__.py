"""What schedulers recorded, on its way to the control API: cut into batches, kept on disk, sent
until it is acknowledged.

It must not lose a record, whatever dies or is away, and must cost requests nothing: it works on what a scheduler gives
away, encodes it once and does all file work in threads. Its danger is one batch that the API cannot take: it must not
stand in the way of the others.
"""
