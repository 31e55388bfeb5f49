// The panel beside the map: why a cell is as it is, as the explanation's own page says it.

import { rewrite } from "./times.js";

let asking = null;

// Puts the explanation at `address` into the panel; the newest question wins. If it fails, `kept` leaves the panel as it is.
export async function explain(panel, address, kept = false) {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  panel.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(address, { signal, headers: { "Fairlead-Regions": "explanation" } });
    if (!response.ok) throw new Error(String(response.status));
    const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
    const found = parsed.querySelector(".why");
    if (!found) throw new Error("no explanation");
    panel.replaceChildren(document.adoptNode(found));
    panel.dataset.told = address;
    rewrite(panel);
  } catch {
    if (signal.aborted) return;
    if (kept) return panel.removeAttribute("aria-busy");
    const words = document.createElement("p");
    words.className = "muted";
    words.textContent = "The explanation could not be had. ";
    const again = document.createElement("button");
    again.type = "button";
    again.className = "small";
    again.textContent = "Ask again";
    again.addEventListener("click", () => explain(panel, address));
    words.append(again);
    panel.replaceChildren(words);
  }
  panel.removeAttribute("aria-busy");
}
