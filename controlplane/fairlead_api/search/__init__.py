"""Search: one question for everything that has a page.

It must not look at more rows than a page of a list. The danger here: a name that exists and is not found.
"""
