// The server may be of another release than this page: its parts no longer fit these scripts, and scripts that were not loaded yet are gone.

import { anyTyped, keepTyped } from "./kept_forms.js";

const KEY = "fairlead-reloaded-for"; // two releases behind one address must not reload a page for ever
const own = new URL(import.meta.url).pathname.split("/").at(-3);
let said = false;

function mayReload(release) {
  return !anyTyped() && !document.querySelector("dialog[open], .heatmap-tip.pinned, [data-state=paused]") && sessionStorage.getItem(KEY) !== release;
}

function say() {
  if (said) return;
  said = true;
  const line = document.createElement("p");
  line.className = "notice warn";
  line.setAttribute("role", "alert");
  const again = document.createElement("a");
  again.href = location.pathname + location.search;
  again.textContent = "Load the page again";
  again.addEventListener("click", () => keepTyped("upgrade"));
  line.append("Fairlead was upgraded. ", again, ": what you typed is kept.");
  document.getElementById("main").prepend(line);
}

// The release that the server names in its answers.
export function noticed(release) {
  if (!release || release === own) return;
  if (!mayReload(release)) { say(); return; }
  sessionStorage.setItem(KEY, release);
  location.reload();
}

// A script could not be loaded: the server may have been upgraded since, or be away.
export async function missing() {
  try {
    const answer = await fetch(`${document.documentElement.dataset.base}/-/version`, { cache: "no-store" });
    noticed((await answer.json()).assets);
  } catch { /* the page goes on with what it has */ }
}
