"""Forms in both directions: makes their fields, at first or after a refusal, and turns the typed text into a request to
the API.

Pure. A refused form keeps the typed text and shows the problem next to it. This package must not repeat checks of the
API: the API decides, and its response names the field. The danger: typed text may mean something else to the API.
"""
