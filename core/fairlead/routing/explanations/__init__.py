"""Explanations: sentences about recorded decisions and moves, and checks of whether a record contradicts itself.

Every sentence is made from the record alone, never from the state of a scheduler. So the control API and its clients
explain a record in the same words. The danger of this package: a sentence that does not follow from the recorded
numbers.
"""
