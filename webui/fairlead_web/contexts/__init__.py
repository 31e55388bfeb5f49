"""What each template gets: one frozen dataclass per template, its fields exactly the template's variables.

Data only: pages fill them, `rendering` reads them, a test renders every one. They must not fetch or decide. Their danger is drifting from the
template: an undefined name is an error at render time, so every template has a test.
"""
