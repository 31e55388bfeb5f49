// The panel beside the map: why a cell is as it is, as the explanation's own page says it.

import { rewrite } from "./times.js";

let asking = null;
let told = null; // the address of the explanation that the panel shows

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
    told = address;
    rewrite(panel);
  } catch {
    if (signal.aborted) return;
    if (kept) { panel.removeAttribute("aria-busy"); return; }
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

// The same question once more, if a new reading of the map has another limit. It is not read out, and never replaces a reader's own question.
export async function explainAgain(panel, map) {
  if (!panel || !told || panel.getAttribute("aria-busy") || map.limit == null) return;
  const address = new URL(told, location.href);
  const query = address.searchParams;
  if (query.get("metric") !== map.metric || Number(query.get("limit")) === map.limit) return;
  query.set("limit", map.limit);
  panel.setAttribute("aria-live", "off");
  await explain(panel, address.href, true);
  panel.setAttribute("aria-live", "polite");
}
