from math import isclose

from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.engine_server.protocols.pooling import DIMENSIONS, cosine, embedding


@given(st.binary(min_size=1, max_size=80))
def test_an_embedding_is_a_unit_vector_of_its_own(prompt: bytes) -> None:
    vector = embedding(prompt)
    assert len(vector) == DIMENSIONS
    assert isclose(cosine(vector, vector), 1.0)
    assert embedding(prompt) == vector


def test_texts_that_share_words_are_nearer_than_others() -> None:
    query = embedding(b"the capital of France")
    assert cosine(query, embedding(b"Paris is the capital of France")) > 0.6 > cosine(query, embedding(b"how to bake bread"))
