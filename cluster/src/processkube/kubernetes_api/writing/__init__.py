"""Creates and changes objects: admission, rules of built-in kinds, patches, server-side apply.

This package must not answer HTTP. Its danger is a check made after the write, when another request may have seen the
object.
"""
