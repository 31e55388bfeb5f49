"""The costs of instances, and which requests caused them: the recorded lifetimes of instances at their prices, divided
exactly between the requests that the instances served and their idle time.

Everything is counted in whole units (`money.UNITS`), so the parts of a sum always add up to the sum. The package must
not read a clock. It must not round an amount before the amount is shown, because shares that are rounded twice do not
add up.
"""
