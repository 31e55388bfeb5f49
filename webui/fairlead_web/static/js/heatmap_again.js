// The panel's explanation, asked for again when a new reading of the map has another limit; loaded with the first such reading.

// The panel is not read out again, and a reader's own question is never replaced. `explain` is the map's, which aborts what it asked before.
export async function explainAgain(panel, map, explain) {
  const { told } = panel.dataset;
  if (!told || !panel.querySelector(".why") || panel.getAttribute("aria-busy") || map.limit == null) return;
  const address = new URL(told, location.href);
  const query = address.searchParams;
  if (query.get("metric") !== map.metric || Number(query.get("limit")) === map.limit) return;
  query.set("limit", map.limit);
  panel.setAttribute("aria-live", "off");
  await explain(panel, address.href, true);
  panel.setAttribute("aria-live", "polite");
}
