"""Measures by pixels what a page has drawn: how much of each line, bar, stack, point and cell is visible."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead_testing.running.browser_site import OpenPage

INK = """() => {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    probe.fillStyle = colour;
    probe.fillRect(0, 0, 1, 1);
    return probe.getImageData(0, 0, 1, 1).data;
  };
  const plotted = (figure) => {
    const [canvas, over] = ["canvas", ".u-over"].map((one) => figure.querySelector(one));
    if (!canvas?.offsetWidth) return [];
    const inside = [over.offsetLeft, over.offsetTop, over.offsetWidth, over.offsetHeight].map((one) => Math.round(one * devicePixelRatio));
    const at = over.offsetWidth ? inside : [0, 0, canvas.width, canvas.height]; // on paper nothing lies over it
    return canvas.getContext("2d").getImageData(...at).data;
  };
  const charts = [...document.querySelectorAll("[data-chart][data-ready]")].flatMap((figure) => {
    const pixels = plotted(figure);
    return [...figure.querySelectorAll(".chart-line")].map((entry) => {
      const swatch = getComputedStyle(entry, "::before");
      const colour = entry.matches(".chart-limit") ? swatch.borderTopColor : swatch.backgroundColor;
      const [r, g, b] = rgb(colour);
      let ink = 0;
      for (let i = 0; i < pixels.length; i += 4) {
        ink += pixels[i + 3] > 200 && Math.abs(pixels[i] - r) + Math.abs(pixels[i + 1] - g) + Math.abs(pixels[i + 2] - b) < 24;
      }
      const hidden = entry.getAttribute("aria-pressed") === "false";
      return { of: figure.dataset.title, line: entry.querySelector("span").textContent, colour, ink, hidden, said: entry.querySelector("strong").textContent };
    });
  });
  const maps = [...document.querySelectorAll("[data-heatmap][data-ready]")].map((figure) => {
    const canvas = figure.querySelector("canvas[data-cells]");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const ink = data.filter((one, index) => index % 4 === 3 && one === 255).length;
    return { of: figure.dataset.words, line: "cells", colour: "", ink: canvas.offsetWidth ? ink : 0, hidden: false, said: "" };
  });
  const pictures = [...document.querySelectorAll("img[data-minimap]")].map((one) => (
    { of: one.closest("a")?.ariaLabel ?? one.alt, line: "picture", colour: "", ink: one.complete ? one.naturalWidth : 0, hidden: false, said: "" }
  ));
  return [...charts, ...maps, ...pictures];
}"""
"""A script that measures the drawn figures of the page.

In charts it counts the pixels in the colours of the legend, within the plot and without axes (on paper with axes). In
heatmaps it counts coloured cells. For small heatmaps it returns the width, which is 0 if the heatmap is missing.
"""

DRAWN = """[...document.querySelectorAll("[data-chart], [data-heatmap]")].every((one) => one.dataset.ready === "yes")
  && [...document.images].every((one) => one.complete)"""
UNSAID = "[...document.querySelectorAll('[data-chart][data-live=yes] [data-plot]')].map((one) => one.setAttribute('aria-label', ''))"
SAID = "[...document.querySelectorAll('[data-chart][data-live=yes] [data-plot]')].every((one) => one.getAttribute('aria-label'))"
"""Whether every live chart describes in words the lines that it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ink:
    """The drawn amount of a line, or of all cells, of a figure: in pixels, or in cells of a heatmap."""

    of: str
    line: str
    colour: str
    ink: int
    hidden: bool
    said: str
    """The value beside the line in the legend."""

    @property
    def name(self) -> str:
        return f"{self.of}: {self.line}"


def ink_of(page: OpenPage) -> list[Ink]:
    """Return the drawn amounts of all figures, in the order of the page."""
    return [Ink(**one) for one in page.evaluate(INK)]


def lost(before: Sequence[Ink], after: Sequence[Ink], share: float = 0.5) -> list[str]:
    """Return the lines of `before` that in `after` are gone, have another colour, or have less than `share` of their
    ink.
    """
    now = {one.name: one for one in after}
    found = []
    for one in before:
        other = now.get(one.name)
        if one.hidden or not one.ink or (other and other.hidden):
            continue
        if other is None:
            found.append(f"{one.name} is gone")
        elif other.colour != one.colour:
            found.append(f"{one.name} was {one.colour}, is {other.colour}")
        elif other.ink < one.ink * share:
            found.append(f"{one.name} had {one.ink} pixels, has {other.ink}")
    return found
