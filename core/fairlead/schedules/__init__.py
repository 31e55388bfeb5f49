"""Schedules: windows in time that bound a pool's replicas per role and override its SLO, early rejection and ratio.

Everything is computed from the specs and an instant. The values in force depend only on this instant, so a missed tick
or a clock that jumps changes nothing. `crons` and `zones` parse input, `starts` finds when windows start, `windows`
finds which are open, `in_force` computes the values they set, and `conflicts` finds windows that overlap. Instants are
aware datetimes.

Daylight saving time is the most likely source of errors here. All rules about it are in `starts`, and a test compares a
year in four time zones with a second implementation, minute by minute.
"""
