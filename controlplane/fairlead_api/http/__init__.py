"""HTTP for every subject: strict reading of bodies and parameters, responses, lists, exports, entity tags, problem
documents.

This package must not know what a response is about. The danger here: a mistake in a request that is ignored instead of
refused.
"""
