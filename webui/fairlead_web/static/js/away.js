// The banner that says why the page no longer changes, and how old everything on it is.

import { span } from "./formats.js";

const SOON_MS = 3000;
const TITLES = {
  away: "The control API does not answer.",
  gone: "What this page shows is gone, or no longer visible to you.",
};

function banner(why) {
  const known = document.getElementById("away");
  if (known?.dataset.why === why) return known;
  known?.remove();
  const made = document.createElement("p");
  made.id = "away";
  made.className = "notice bad away";
  made.dataset.why = why;
  const title = document.createElement("strong");
  title.setAttribute("role", "alert"); // not the age, which changes: all of it would be spoken again
  title.textContent = TITLES[why];
  made.append(title, " ", document.createElement("span"));
  if (why === "gone") {
    const again = document.createElement("a");
    again.href = location.pathname + location.search;
    again.textContent = "Load it again";
    made.append(" ", again);
  }
  document.getElementById("main").prepend(made);
  return made;
}

// Shows the banner for the API that is `away` or a page that is `gone`, or takes it away; `since` is when the page last heard something, in
// milliseconds. An API that is away may be back in a moment.
export function show(why, since) {
  const age = Date.now() - since;
  const shown = why === "gone" || (why === "away" && age >= SOON_MS);
  document.documentElement.classList.toggle("stale", shown);
  if (!why) document.getElementById("away")?.remove();
  if (!shown) return;
  const rest = why === "gone" ? "It may have been deleted, or your role changed."
    : "Routers keep serving, and this page goes on by itself. What you type stays; nothing is sent before the API answers.";
  banner(why).querySelector("span").textContent = `What you see is ${span(age / 1000)} old. ${rest}`;
}
