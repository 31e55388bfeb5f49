"""Forms in both directions: their fields, at first or after a refusal, and the typed text as a request for the API.

Pure. A refused form keeps the typed text and shows the problem next to it. It must not repeat checks of the API: the
API decides, and its answer names the field. Its danger is typed text that means something else to the API.
"""
