"""HTTP as every subject speaks it: bodies and parameters read strictly, answers, lists, exports, tags, problems.

It must not know what an answer is about. The danger here: a mistake in a request that is ignored instead of refused.
"""
