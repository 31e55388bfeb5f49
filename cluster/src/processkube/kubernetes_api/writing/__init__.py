"""Creates and changes objects, with admission, rules of built-in kinds, patches and server-side apply.

This package must not send HTTP responses. Its danger is a check that is made only after the write, because another
request may have read the object by then.
"""
