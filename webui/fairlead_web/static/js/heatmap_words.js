// What the page says of a map in words and marks: its scale, its summary, the names of its rows. They come with the map that they are of.

import { rewrite } from "./times.js";

// Puts them where the page has them, but where a reader's focus is: there the next reading does.
export function tell(figure, words) {
  const parsed = new DOMParser().parseFromString(words, "text/html");
  for (const told of parsed.querySelectorAll("[data-told]")) {
    const name = `[data-told=${told.dataset.told}]`;
    const place = figure.querySelector(name) ?? document.querySelector(name);
    if (!place || place.contains(document.activeElement)) continue;
    const scrolled = place.firstElementChild?.scrollTop;
    place.replaceChildren(...told.childNodes);
    rewrite(place);
    if (scrolled) place.firstElementChild.scrollTop = scrolled;
  }
}
