// The banner that says how old everything on the page is while the control API does not answer.

import { span } from "./formats.js";

const SOON_MS = 3000;

function banner() {
  const known = document.getElementById("away");
  if (known) return known;
  const made = document.createElement("p");
  made.id = "away";
  made.className = "notice bad away";
  made.setAttribute("role", "alert");
  const title = document.createElement("strong");
  title.textContent = "The control API does not answer.";
  const rest = document.createElement("span");
  made.append(title, " ", rest);
  document.getElementById("main").prepend(made);
  return made;
}

// Shows or takes away the banner; `since` is when the page last heard something, in milliseconds.
export function show(away, since) {
  const gone = Date.now() - since;
  document.documentElement.classList.toggle("stale", away && gone > SOON_MS);
  if (!away || gone < SOON_MS) {
    if (!away) document.getElementById("away")?.remove();
    return;
  }
  banner().querySelector("span").textContent = `What you see is ${span(gone / 1000)} old. Routers keep serving, and this page goes on by itself. What you type stays; nothing is sent before the API answers.`;
}
