"""What scaling would do."""

from fairlead_api.services.plans.effects import InstanceUse, ScaleBasis, scale_effect


def basis(*uses: tuple[str, str, int, int], rps: float | None = None) -> ScaleBasis:
    return ScaleBasis(
        instances=[
            InstanceUse(id=name, state=state, bound_sessions=bound, cache_tokens=cached, in_flight=0) for name, state, bound, cached in uses
        ],
        attainment=1.0,
        requests_per_second=rps,
        miss_tokens_per_second=None if rps is None else rps * 1000,
        prefill_tokens_per_second=5000,
        ttft_slo_seconds=1.0,
    )


def test_victims_are_the_cheapest_and_heaviness_counts_their_sessions() -> None:
    pool = basis(("a", "Serving", 10, 500), ("b", "Serving", 1, 900), ("c", "Serving", 30, 10), ("d", "Starting", 0, 0))
    assert scale_effect(pool, 4, 2).victims == ["d", "c"]
    assert scale_effect(pool, 4, 3).victims == ["d"]
    assert (scale_effect(pool, 4, 3).heavy, scale_effect(pool, 4, 2).heavy, scale_effect(pool, 4, 0).heavy) == (False, True, True)
    assert scale_effect(pool, 4, 6).instances_added == 2
    assert scale_effect(pool, 4, 6).predicted_attainment is None


def test_sessions_move_while_somebody_is_left_to_take_them_and_are_lost_otherwise() -> None:
    pool = basis(("a", "Serving", 10, 500), ("b", "Serving", 4, 900))
    half, none = scale_effect(pool, 2, 1), scale_effect(pool, 2, 0)
    assert (half.sessions_moved, half.sessions_lost) == (4, 0)
    assert (none.sessions_moved, none.sessions_lost) == (0, 14)
    assert any("14 of 14 sessions are lost" in warning for warning in none.warnings)


def test_a_prediction_says_what_it_is_made_from_and_without_traffic_there_is_none() -> None:
    busy, quiet = scale_effect(basis(("a", "Serving", 1, 1), rps=12), 4, 3), scale_effect(basis(("a", "Serving", 1, 1)), 4, 3)
    assert busy.prediction_basis is not None and "12.0 requests/s" in busy.prediction_basis
    assert (quiet.predicted_attainment, quiet.prediction_basis) == (None, None)


def test_more_instances_never_predict_worse() -> None:
    pool = basis(("a", "Serving", 1, 1), rps=12)
    found = [scale_effect(pool, 4, after).predicted_attainment or 0.0 for after in range(8)]
    assert found == sorted(found)
    assert found[0] == found[2] == 0.0
    assert found[7] > 0.9
    assert "faster than" in scale_effect(pool, 4, 2).warnings[0]
