"""The size of index entries: Postgres refuses a row with an entry of more than 2,704 bytes."""

import pytest
from sqlalchemy import Table, Text, UniqueConstraint

from fairlead_api.infra.columns import metadata
from fairlead_api.reports.plausibility import MAX_NAME

LARGEST_ENTRY = 2704
REST = 600
"""An upper bound of the bytes that an entry needs for numbers, times and our own words, besides foreign texts."""
OUR_WORDS = frozenset({"outcome", "trigger", "refusal"})


def entries(table: Table) -> dict[str, list[str]]:
    """Return the columns of each index of a table, including those that it only includes."""
    found = {str(one.name): [*one.columns.keys(), *(one.dialect_options["postgresql"]["include"] or ())] for one in table.indexes}
    unique = [one for one in table.constraints if isinstance(one, UniqueConstraint)]
    return found | {f"{table.name}: {one.columns.keys()}": one.columns.keys() for one in (table.primary_key, *unique)}


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=str)
def test_the_longest_texts_that_are_stored_fit_into_every_index(table: Table) -> None:
    for index, columns in entries(table).items():
        texts = [name for name in columns if name in table.c and isinstance(table.c[name].type, Text) and name not in OUR_WORDS]
        assert len(texts) * MAX_NAME + REST <= LARGEST_ENTRY, (index, texts)
