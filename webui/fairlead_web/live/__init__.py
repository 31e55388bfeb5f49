"""Refreshes open pages, and shares the API's responses among all people who view the same page. docs/live-pages.md
follows an event from the API into an open page.

This package must not render or fetch, which is the task of pages and of `frame`. The danger is the cost, because an
event reaches every open tab at once. Therefore work is done once per page and round, and always after the work for a
person who is opening a page.
"""
