"""To be written."""

from benchmarks.reproductions.sections import Context, Section


def write(context: Context) -> str:
    """Run and describe."""
    raise NotImplementedError


SECTION = Section(name="staleness", title="What stale and wrong observations cost", write=write)
