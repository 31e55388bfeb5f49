"""Schedules: windows in time that bound a pool's replicas per role and override its SLO, early rejection and ratio.

Everything is computed from the specs and an instant, so a missed tick or a clock that jumps changes nothing: what is in
force depends on now alone. `crons` and `zones` read what people write, `starts` finds when windows start, `windows`
which are open, `in_force` what they set, `conflicts` where two of them meet. Instants are aware datetimes.

The danger here is daylight saving time. Each rule about it stands in `starts`, and a test compares a year in four time
zones with a second implementation, minute by minute.
"""
