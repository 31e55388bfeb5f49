"""Parameters of the adaptive hash key, shared by the policies that hash onto rings."""

from dataclasses import dataclass, replace

from fairlead.errors import InvalidInput
from fairlead.routing.choosing.prefix_hotness import CODE, PAPER, HotnessSettings
from fairlead.routing.contracts.parameters import HomeParameters
from fairlead.schemas.shapes import number, text, whole

PRESETS = ("dualmap-paper", "dualmap-code")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyParameters(HomeParameters):
    """Parameters of DualMap's adaptive key. A parameter that is not given has the value of the preset."""

    preset: str = text(
        "Source of the parameters that are not given: the DualMap paper (hot above 2/n, cold below 1/n, overload at the whole SLO) "
        "or its published code (constants 0.0612 and 0.02 in a window with two entries per request, overload at half the SLO).",
        "dualmap-paper",
        enum=PRESETS,
    )
    hot_share: float | None = number(
        "Share of recent requests above which a prefix is hot and its key grows by a block; default: the preset's value.",
        None,
        minimum=0.0,
        maximum=1.0,
    )
    cold_share: float | None = number(
        "Share below which a prefix is cold and its key shrinks; at most the hot share; default by preset.", None, minimum=0.0, maximum=1.0
    )
    hotness_window: int = whole("Entries of the sliding window over which shares are counted.", 200, minimum=10, maximum=100_000)
    hotness_min_samples: int = whole("Minimum number of requests in the window before any key grows.", 20, minimum=1, maximum=100_000)

    def __post_init__(self) -> None:
        if self.hot_share is not None and self.cold_share is not None and self.cold_share > self.hot_share:
            raise InvalidInput("spec.routing.parameters.cold_share", self.cold_share, f"write at most hot_share, {self.hot_share:g}")
        if self.hotness_min_samples > self.hotness_window:
            remedy = f"write at most hotness_window, {self.hotness_window}"
            raise InvalidInput("spec.routing.parameters.hotness_min_samples", self.hotness_min_samples, remedy)

    def hotness(self) -> HotnessSettings:
        """The settings of the prefix-hotness tree."""
        preset = CODE if self.preset == "dualmap-code" else PAPER
        return replace(
            preset,
            hot_share=preset.hot_share if self.hot_share is None else self.hot_share,
            cold_share=preset.cold_share if self.cold_share is None else self.cold_share,
            window=self.hotness_window,
            min_samples=self.hotness_min_samples,
        )
