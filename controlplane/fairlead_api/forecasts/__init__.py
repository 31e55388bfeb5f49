"""Forecasts of pools' demand, the schedules proposed from forecasts, and the check whether demand follows a forecast.

This package must not change a pool: a proposal is a plan, and a departure of demand from the forecast is only reported
to the operator. The danger here is the amount of work. A back-test replays a week with the whole scaling pipeline, so
only one runs at a time, once a day for each pool.
"""
