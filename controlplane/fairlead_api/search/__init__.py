"""Search: one query for everything that has a page.

It must not read more rows than a page of a list does. The danger here: a name that exists but is not found.
"""
