// Lists of links are one stop of the Tab key each, the current link or the first; arrow keys, Home and End move within. Without scripts every link is a stop.

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

const shown = (list) => [...list.querySelectorAll("a")].filter((link) => link.checkVisibility());

function oneStop(list) {
  const links = shown(list);
  const stop = links.find((link) => link === document.activeElement) ?? links.find((link) => link.ariaCurrent) ?? links[0];
  for (const link of list.querySelectorAll("a")) link.tabIndex = link === stop ? 0 : -1;
}

function oneStopEach() {
  document.querySelectorAll("[data-arrows]").forEach(oneStop);
}

function move(event) {
  const list = event.target.closest?.("a")?.closest("[data-arrows]");
  if (!list || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.defaultPrevented) return;
  const links = shown(list);
  const now = links.indexOf(event.target.closest("a"));
  const next = event.key === "Home" ? 0 : event.key === "End" ? links.length - 1 : event.key in STEPS ? (now + STEPS[event.key] + links.length) % links.length : -1;
  if (next < 0) return;
  event.preventDefault();
  links[next].focus();
}

export function start() {
  oneStopEach();
  document.addEventListener("keydown", move);
  document.addEventListener("focusin", (event) => { const list = event.target.closest?.("[data-arrows]"); if (list) oneStop(list); });
  document.addEventListener("htmx:after:swap", oneStopEach); // what the server sends knows nothing of it
  document.addEventListener("toggle", oneStopEach, true); // the drawer of a small screen
}
