"""To be written."""

from benchmarks.reproductions.sections import Context, Section


def write(context: Context) -> str:
    """Run and describe."""
    raise NotImplementedError


SECTION = Section(name="dualmap", title="DualMap: effective capacity, goodput, ablation, elasticity, number of candidates", write=write)
