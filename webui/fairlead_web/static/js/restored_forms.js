// Puts back what was typed into a form that was not carried out: the session had ended, the page was loaded again, or what came was an error
// page or nothing. A form that was answered is forgotten, as is one that somebody else typed in this tab, or that was typed yesterday.

import { alike, isBox, left, say, who } from "./kept_forms.js";

const LIFE_MS = 12 * 3600 * 1000;
const WORDS = {
  session: "You were signed out before this was sent",
  upgrade: "The page was loaded again before this was sent",
  failed: "This was sent, but not answered",
};

const isForgotten = (kept) => Date.now() - kept.at > LIFE_MS || (who() && kept.who !== who());

// Why the form was not carried out, as known on this page; null if it was. `refused`: the page before this one was its error page, and loading
// that again sends the form again.
function reason({ why, refused }, came, failed) {
  if (refused && came === "reload" && !failed) return null;
  if (why !== "sent") return why;
  return failed || came === "back_forward" || came === "reload" ? "failed" : null;
}

export function restore(key) {
  if (location.pathname.endsWith("/login")) return;
  const kept = JSON.parse(sessionStorage.getItem(key));
  const came = performance.getEntriesByType("navigation")[0]?.type;
  const failed = Boolean(document.querySelector(".error-body"));
  const why = isForgotten(kept) ? null : reason(kept, came, failed);
  const refused = failed && (kept.why === "sent" || (kept.refused && came === "reload"));
  if (why && (kept.path !== location.pathname || failed)) return sessionStorage.setItem(key, JSON.stringify({ ...kept, why, refused }));
  sessionStorage.removeItem(key);
  const form = why && alike(kept.look)[kept.place];
  if (form) show(form, kept.values, why);
}

function show(form, values, why) {
  fill(form, values);
  form.dispatchEvent(new Event("input", { bubbles: true })); // what depends on the fields, as a button that waits for a name
  const folded = form.closest("details");
  if (folded) folded.open = true;
  const after = why === "failed" ? "" : "othing was changed";
  const words = form.hidden ? after && ` N${after}.` : ` What you typed is here again${after && `; n${after}`}.`;
  const line = say(form, `${WORDS[why]}.${words}`);
  (form.hidden ? line : form).scrollIntoView({ block: "center" });
}

// Fields of one name, as repeated lines are, take their values in order. A box is ticked if its value is among those of its name.
function fill(form, values) {
  for (const field of [...form.elements].filter((one) => one.name && !left(one))) {
    const place = values.findIndex(([name, value]) => name === field.name && (!isBox(field) || value === field.value));
    if (isBox(field)) field.checked = place >= 0;
    else if (place >= 0) [[, field.value]] = values.splice(place, 1);
  }
}
