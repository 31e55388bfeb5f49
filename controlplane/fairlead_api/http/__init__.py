"""HTTP for every subject: strict reading of bodies and parameters, responses, lists, exports, entity tags, problem
documents.

This package must not know the subject of a response. The danger: a mistake in a request is ignored instead of refused.
"""
