"""How open pages are refreshed, and how everybody who views the same page shares the API's answers. docs/live-pages.md
follows an event from the API into an open page.

It must not render or fetch: pages and `frame` do. Its danger is cost: an event reaches every open tab at once, so work
is done once per page and round, and never before the work for a person who opens a page.
"""
