"""Forecasts of pools' demand, the schedules proposed from them, and the check of whether demand follows them.

It must not change a pool: a proposal is a plan, and a departure from the forecast is only reported to the operator. The
danger here is the amount of work. A back-test replays a week with the whole scaling pipeline, so only one is made at a
time, and once a day for each pool.
"""
