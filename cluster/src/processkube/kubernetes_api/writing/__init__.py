"""Creates and changes objects: admission, rules of built-in kinds, patches, server-side apply.

It must not answer HTTP. Its danger: a check made after the write, when another request may have seen the object.
"""
