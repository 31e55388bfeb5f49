"""Code that the tests share.

`builders` makes values, `fakes` stand in for the other side of a seam, `worlds` run parts of Fairlead on virtual time,
`running` starts real processes and servers.

Nothing here is shipped. Its danger: a fake that answers differently from the real thing. tests/contract therefore runs
the same cases against each fake and its original.
"""
