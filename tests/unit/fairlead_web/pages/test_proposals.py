"""Proposals: on the pages of advice until somebody applies them, and as a plan with its reason and its outcome."""

from fairlead_testing.fakes.public_data.loads import CHAT, HOSTILE
from fairlead_testing.running.web_client import visitor


async def test_a_proposal_is_listed_with_its_reason_until_it_is_applied_and_then_has_its_outcome() -> None:
    async with visitor("operator") as one:
        made = one.fake.book.propose(CHAT, 9, f"The operator advised 9 replicas: {HOSTILE}")
        one.fake.book.make(CHAT, 10, "ada")
        for page in ("/advice", f"/pools/{CHAT}/advice"):
            shown = (await one.http.get(page)).text
            assert shown.count(f'href="/plans/{made.id}"') == 1 and HOSTILE not in shown
            assert shown.count('data-label="Waits until"') == 1, "a person's plan is no proposal"
        assert f'href="/plans/{made.id}"' not in (await one.http.get("/pools/research/code/advice")).text
        before = (await one.http.get(f"/plans/{made.id}")).text
        assert "Proposed by Fairlead." in before and "Simulated effect" in before and "Outcome" not in before
        assert (await one.submit(f"/plans/{made.id}/apply", f"/plans/{made.id}", reason="yes")).status_code == 303
        after = (await one.http.get(f"/plans/{made.id}")).text
        assert "97.0 %" in after and "81.0 % in the ten minutes before" in after
        assert f'href="/plans/{made.id}"' not in (await one.http.get("/advice")).text


async def test_the_pages_of_advice_are_shown_though_proposals_cannot_be_read() -> None:
    async with visitor("viewer") as one:
        one.fake.broken.add("/v1/plans")
        assert (await one.http.get("/advice")).status_code == 200
