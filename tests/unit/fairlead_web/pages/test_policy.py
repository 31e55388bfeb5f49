"""The page of policies: a sentence for each, parameters with bounds from their schema, refusals at the field."""

import pytest

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import visitor
from fairlead_web.pages.policy import fields_of, parameters_of

POLICY = f"/pools/{CHAT}/policy"


async def test_every_policy_has_its_sentence_and_the_one_in_use_is_chosen() -> None:
    async with visitor("admin") as admin:
        page = (await admin.http.get(POLICY)).text
        for name in BUILT_IN.names:
            assert f'href="{POLICY}?policy={name}"' in page
            assert BUILT_IN.entry(name).intent.split("'")[0].split("&")[0][:30] in page
        assert 'name="slo_fraction"' in page
        assert 'value="0.8"' in page
        assert "Write a number from 0.01 to 100." in page
        assert "Needs instances of role prefill" in page


@pytest.mark.parametrize("name", BUILT_IN.names)
async def test_each_policys_form_without_a_change_says_its_defaults(name: str) -> None:
    shapes = BUILT_IN.parameters(name)
    fields = fields_of(shapes, {}, None)
    assert {field.name for field in fields} == shapes.keys()
    assert all(field.help for field in fields)
    BUILT_IN.check_parameters(name, parameters_of(shapes, {field.name: field.value for field in fields}))


async def test_another_policy_with_a_parameter_becomes_a_plan() -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit(POLICY, policy="dualmap", slo_fraction="0.5", preset="dualmap-code")
        assert answer.status_code == 303
        (plan,) = admin.fake.book.plans.values()
        assert "slo_fraction: 0.5" in plan.patch
        assert "preset: dualmap-code" in plan.patch


@pytest.mark.parametrize(("value", "said"), [("many", "write a number from 0.01 to 100"), ("1000", "0.01 to 100")])
async def test_a_wrong_parameter_is_refused_at_its_field_and_the_others_stay(value: str, said: str) -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit(POLICY, policy="dualmap", slo_fraction=value, candidates="3")
        assert answer.status_code == 422
        at = answer.text.split('name="slo_fraction"')[1].split("</p>")[0]
        assert 'aria-invalid="true"' in at
        assert said in at
        assert answer.text.count('aria-invalid="true"') == 1
        assert 'value="3"' in answer.text


async def test_a_policy_that_is_not_there_has_no_page() -> None:
    async with visitor("admin") as admin:
        assert (await admin.http.get(f"{POLICY}?policy=none-such")).status_code == 404


async def test_the_pools_shadows_are_shown_as_predictions_in_all_and_by_hour() -> None:
    async with visitor("viewer") as viewer:
        page = (await viewer.http.get(POLICY)).text
        shadows = page.split('id="h-shadows"')[1]
        assert "the router's formula predicts" in " ".join(shadows.split())
        assert "-0.084 ± 0.011 s" in shadows
        assert "-2,140 ± 160 tokens" in shadows
        assert "70.0 %" in shadows
        assert "3 failed" in shadows
        assert shadows.count('data-label="Hour"') == 6


async def test_a_policy_can_be_planned_while_the_shadows_cannot_be_read() -> None:
    async with visitor("admin") as admin:
        admin.fake.broken.add("/shadows")
        answer = await admin.http.get(POLICY)
        assert answer.status_code == 200
        assert 'name="slo_fraction"' in answer.text
        assert "They could not be read." in answer.text.split('id="h-shadows"')[1]
