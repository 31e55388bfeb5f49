"""HTTP for every subject: strict reading of bodies and parameters, answers, lists, exports, tags, problem documents.

It must not know what an answer is about. The danger here: a mistake in a request that is ignored instead of refused.
"""
