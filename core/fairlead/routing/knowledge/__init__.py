"""Knowledge: the memory and the estimates of one pool's scheduler.

It records the prefixes that each instance holds, the bindings of sessions, the durations of prefills and decode steps,
the failures of instances, and the hash ring. `views` presents all this to a policy. This package does not choose
instances. The danger of this package: its memory grows with traffic, so each part needs a bound.
"""
