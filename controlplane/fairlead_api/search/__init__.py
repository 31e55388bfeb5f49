"""Search: one query over every kind of object that has a page.

This package must not read more rows than a page of a list does. The danger: an existing name is not found.
"""
