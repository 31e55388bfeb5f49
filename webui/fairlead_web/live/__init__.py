"""How open pages are refreshed, and how the API's answers are shared between all who look at the same page.

docs/live-pages.md follows an event from the API into an open page. It must not render or fetch: pages and `frame` do.
Its danger is cost: an event reaches every open tab at once, so work is done once a page and round, and never before the
work for a person that opens a page.
"""
