"""Creating and changing objects: admission, rules of built-in kinds, patches, server-side apply.

It must not answer HTTP. Its danger: a check after the write, which another request could see.
"""
