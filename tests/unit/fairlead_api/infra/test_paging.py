"""Cursors that the API did not make."""

import base64

import pytest
from sqlalchemy import Text, column

from fairlead.errors import InvalidInput
from fairlead_api.infra.paging import decode_cursor


@pytest.mark.parametrize("content", [b"[" * 2900, b"[" * 1400 + b"]" * 1400, b"{}", b"\xff", b"[1, 2]"])
def test_a_cursor_that_was_not_made_here_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode_cursor(base64.urlsafe_b64encode(content).decode(), [column("name", Text())])
    assert refused.value.field == "cursor"
