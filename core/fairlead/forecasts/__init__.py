"""Forecasts: the demand that a pool's records predict for the coming week, and the schedules that follow from it.

`records` holds the past demand in quarters of an hour, `calendars` the days that differ from their weekday, `seasonal`
the forecast with its band, `needs` the instances that the forecast needs, and `blocks` the few windows that cover the
need. `backtests` computes what such windows would have done in a past week, `proposals` combines all this, and
`watching` checks whether demand is still within the band. Pure: the same record gives the same proposal on any machine.

The danger here is a forecast that is trusted too much. Too short a record gives no forecast, a schedule only narrows a
role's bounds, and nothing in this package changes a pool: a forecast becomes a plan that a person applies.
"""
