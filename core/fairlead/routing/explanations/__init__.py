"""Explanations: recorded decisions and moves in sentences, and whether a record contradicts itself.

Every sentence is made from the record alone, never from the state of a scheduler, so that the control API and its
clients explain a record alike. Its danger: a sentence that does not follow from the recorded numbers.
"""
