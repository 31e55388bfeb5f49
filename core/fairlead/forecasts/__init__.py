"""Forecasts: what a pool's recorded demand says of the coming week, and the schedules that follow from it.

`records` is the demand of the past in quarters of an hour, `calendars` the days that are unlike their weekday,
`seasonal` the forecast with its band, `needs` the instances for it, `blocks` the few windows that cover them,
`backtests` what such windows would have done in a past week, `proposals` all of it together, and `watching` whether
demand is still within the band. Pure: the same record gives the same proposal on any machine.

The danger here is a forecast that is believed too much. Too short a record gives none, a schedule only narrows a
role's bounds, and nothing of this changes a pool: it becomes a plan that a person applies.
"""
