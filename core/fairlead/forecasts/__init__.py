"""Forecasts: the demand that a pool's records predict for the coming week, and the schedules that follow from it.

`records` holds the past demand in quarters of an hour, `calendars` the days that differ from their weekday, `seasonal`
the forecast with its band, `needs` the instances that the forecast needs, and `blocks` the few windows that cover the
need. `backtests` computes the effect that such windows would have had in a past week, `proposals` combines these
modules, and `watching` checks whether demand is still within the band. Pure: the same record gives the same proposal on
any machine.

The danger is too much trust in a forecast. So there is no forecast from a short record, a schedule can only narrow a
role's bounds, and this package never changes a pool: a forecast becomes a plan that a person applies.
"""
