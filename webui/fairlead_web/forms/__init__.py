"""Forms both ways: what they show at first or after a refusal, and what was typed as a request for the API.

Pure. A refused form keeps what was typed and says what was wrong beside it. It must not check what the API checks: the
API decides, and its answer names the field. Its danger is typed text that means something else to the API.
"""
