"""How open pages are refreshed, and how everybody who views the same page shares the API's responses.
docs/live-pages.md follows an event from the API into an open page.

This package must not render or fetch, which is the task of pages and of `frame`. The danger here is cost: an event
reaches every open tab at once, so work is done once per page and round, and never before the work for a person who is
opening a page.
"""
