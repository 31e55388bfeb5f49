"""Forecasts of pools' demand, the schedules proposed from them, and whether demand keeps to them.

It must not change a pool: a proposal is a plan, and a departure is a word to the operator. The danger here is the work:
a back-test replays a week with the whole scaling pipeline, so one is made at a time, once a day for each pool.
"""
