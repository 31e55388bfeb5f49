from fairlead.scaling.bounds import BoundsInForce


def test_a_bound_is_blamed_for_numbers_that_it_keeps_out_and_not_for_its_own() -> None:
    bounds = BoundsInForce(lower=2, upper=4, lower_by="mornings", upper_by="nights")
    assert [bounds.set_by(number) for number in (1, 2, 3, 4, 5)] == ["mornings", None, None, None, "nights"]
    assert [bounds.clamp(number) for number in (1, 2, 3, 4, 5)] == [2, 2, 3, 4, 4]
