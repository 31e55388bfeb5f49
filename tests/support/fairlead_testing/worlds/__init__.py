"""Parts of Fairlead on virtual time, with a world around them.

They must not read a real clock. Their danger: a world kinder than the real one.
"""
