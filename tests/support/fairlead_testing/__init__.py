"""Code that the tests share.

`builders` makes values, `fakes` stand in for what lies beyond a seam, `worlds` run parts of Fairlead on virtual time,
`running` starts real processes and servers.

Nothing here is shipped. Its danger: a fake that answers otherwise than the real thing; tests/contract holds each fake
to it.
"""
