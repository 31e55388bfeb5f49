"""People's queries about the hash ring."""

import pytest

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState
from fairlead.routing.contracts.catalogues import RingUse
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_api.pools.rings import RingQuestion, ring_of
from fairlead_client.resources.rings import Ring
from fairlead_testing.builders.routing import entries, entry, table

BOUND = {"i00": 40, "i01": 20, "i02": 20, "gone": 7}


def asked(question: RingQuestion, policy: str = "dualmap") -> Ring:
    instances = (*entries(3), entry("i03", InstanceState.CORDONED, anchors=0))
    return ring_of(table(instances, policy=policy), 160, BOUND, BUILT_IN, question)


def test_shares_sum_to_one_and_who_takes_no_requests_has_none() -> None:
    ring = asked(RingQuestion())
    assert sum(one.key_share for one in ring.instances) == pytest.approx(1.0)
    assert (ring.instances[3].key_share, ring.instances[3].anchors, ring.anchors) == (0.0, 0, 480)
    assert ring.imbalance == pytest.approx(max(one.key_share for one in ring.instances) * 3 - 1)
    assert ring.change is None


def test_an_instance_that_leaves_gives_its_keys_and_all_its_sessions() -> None:
    ring = asked(RingQuestion(remove=("i00",)))
    assert ring.change is not None
    assert ring.change.moved_share == pytest.approx(ring.instances[0].key_share)
    assert (ring.change.sessions_moved, ring.change.sessions_leaving) == (40, 40)
    assert ring.instances[0].share_after == 0.0


def test_a_new_instance_draws_sessions_only_where_requests_follow_the_ring() -> None:
    followed, free = asked(RingQuestion(add=1)), asked(RingQuestion(add=1), "fairlead")
    assert followed.change is not None and free.change is not None
    assert followed.change.moved_share == free.change.moved_share == pytest.approx(followed.instances[-1].share_after or 0)
    assert 10 < followed.change.sessions_moved < 35
    assert (free.change.sessions_moved, free.ring_use) == (0, RingUse.NONE)
    assert {move.target for move in followed.change.moves} == {"new-1"}


def test_a_question_about_nobody_is_refused_with_the_names_it_could_be_asked_about() -> None:
    for question, words in (
        (RingQuestion(remove=("i03",)), "i00, i01, i02"),
        (RingQuestion(add=-1), "0 to 256"),
        (RingQuestion(anchors=0), "1 to"),
    ):
        with pytest.raises(InvalidInput, match=words):
            asked(question)
