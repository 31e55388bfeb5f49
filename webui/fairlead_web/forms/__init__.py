"""Makes the fields of forms, and turns submitted text into a request to the API.

Pure. A refused form keeps the typed text and shows the problem next to it. This package must not repeat checks of the
API: the API decides, and its response names the field. The danger: typed text may mean something else to the API.
"""
