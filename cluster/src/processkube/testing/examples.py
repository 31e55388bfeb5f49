"""The number of examples that property tests run: at most 25 where a person waits for the result, and all of them in
the nightly lane.

A test says with `@examples(200)` how many examples it wants. A Hypothesis profile decides how many it gets. No test
uses Hypothesis' own `settings` for a number, because that would ignore the profile. `pytest --hypothesis-profile`
selects the profile:

- `few`, the default: at most `FEW` examples, and at most as many steps of a state machine. Each run has the same
  examples, so that a failing build is always caused by the change.
- `all`: as many examples as each test wants, the same ones in each run.
- `here`: as many examples as each test wants, but different ones in each run, to find new failures.

No profile lets an example fail because the machine was slow.
"""

from collections.abc import Collection

from hypothesis import HealthCheck, Phase, settings

FEW = 25
STEPS = 50
"""Number of steps of a state machine, unless its test wants another number."""


def register_profiles() -> None:
    """Register the profiles. A conftest.py must call this before any test module is imported, because the decorators in
    test modules read the profile.
    """
    plain = settings.get_profile("default")
    settings.register_profile("here", plain, deadline=None, suppress_health_check=[HealthCheck.too_slow], stateful_step_count=STEPS)
    settings.register_profile("all", settings.get_profile("here"), derandomize=True)
    settings.register_profile("few", settings.get_profile("all"), max_examples=FEW, stateful_step_count=FEW)
    settings.load_profile("few")


def examples(
    number: int, *, steps: int = STEPS, phases: Collection[Phase] = tuple(Phase), suppress: Collection[HealthCheck] = ()
) -> settings:
    """Return the settings for a test that wants `number` examples; each example of a state machine has `steps` steps.

    `suppress` names health checks that do not apply to the test. The health check for slow examples is always
    suppressed.
    """
    few = settings.get_current_profile_name().startswith("few")  # a verbosity that was asked for is appended to the name
    return settings(
        max_examples=min(number, FEW) if few else number,
        stateful_step_count=min(steps, FEW) if few else steps,
        phases=phases,
        suppress_health_check=[HealthCheck.too_slow, *suppress],
    )


def search(limit: int) -> settings:
    """Return the settings for `hypothesis.find`. In any profile, it stops at its first hit or after `limit`
    examples.
    """
    return settings(max_examples=limit, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
