"""What instances cost, and who used them: the recorded lives of instances at their prices, divided exactly among the
requests that they served and the time in which they served none.

Everything is counted in whole units (`money.UNITS`), so the parts of a sum always add up to it. It must not read a
clock or round an amount before it is shown. The danger here: a share that is rounded twice.
"""
