"""Takes routers' reports, and judges which rows can be stored.

It must not refuse a whole report for one bad row. The danger here: storing a report twice, or a row that never
happened.
"""
