// A form that would be lost is kept: before it is sent, the API is asked whether it answers and still knows this session. If it does not
// answer, the form stays as it is and can be sent again. If the session has ended, what was typed waits in this tab until the person is back
// on the page, also when the page itself finds that out. A form that was sent is kept until a page answers it.

const KEY = "fairlead-kept-form";
const PATIENCE_MS = 8000;

const base = () => document.documentElement.dataset.base;
// Secret, or not to be set by a script. The values with which a form was opened are kept, so that only what was typed counts as changed.
export const left = (field) => ["password", "hidden", "file", "submit", "button"].includes(field.type) && !/^former/.test(field.name) || field.dataset.secret != null;
export const who = () => document.querySelector(".user summary")?.ariaLabel;
const given = (field) => (field.matches("select") ? ([...field.options].find((one) => one.defaultSelected) ?? field.options[0])?.value : field.defaultValue);
export const typed = (field) => field.matches("input, select, textarea") && (field.value !== given(field) || field.checked !== field.defaultChecked);
export const isBox = (field) => field.type === "radio" || field.type === "checkbox";
const touched = (form) => [...form.elements].some((field) => field.name && typed(field));

// Forms of a page are told apart by where they are sent, by the kind and role of a change, and alike ones by their order.
const posts = () => [...document.forms].filter((one) => one.getAttribute("method") === "post" && !one.matches(".theme-form"));
const lookOf = (form) => [form.getAttribute("action"), ...["kind", "role"].map((name) => form.querySelector(`[type=hidden][name=${name}]`)?.value)].join(" ");
export const alike = (look) => posts().filter((one) => lookOf(one) === look);

export function keep(form, why = "session") {
  const kept = form.id === "send-again" && sessionStorage.getItem(KEY); // on an error page: the form that was refused is kept already
  if (kept) return sessionStorage.setItem(KEY, JSON.stringify({ ...JSON.parse(kept), why }));
  const values = [...form.elements].filter((one) => one.name && !left(one) && (!isBox(one) || one.checked)).map((one) => [one.name, one.value]);
  const look = lookOf(form);
  sessionStorage.setItem(KEY, JSON.stringify({ why, who: who(), at: Date.now(), path: location.pathname, look, place: alike(look).indexOf(form), values }));
}

const typedForm = () => posts().find(touched);

export const anyTyped = () => Boolean(typedForm()) || document.activeElement?.matches("input, textarea, select");

// Keeps the form in which something was typed, as the page is about to be left: `why` is the end of the session, or an upgrade.
export function keepTyped(why = "session") {
  const form = typedForm();
  if (form) keep(form, why);
}

// What is said of a form is in it. A hidden one has its buttons elsewhere, in rows and findings: what is said of it is on top of the page, below
// the banner of an API that is away, which it covers where both stay in sight.
const said = (form) => (form.hidden ? document.getElementById("main") : form).querySelector(":scope > [data-kept]");

export function say(form, words) {
  let line = said(form);
  if (!line) {
    line = document.createElement("p");
    line.dataset.kept = "";
    line.className = form.hidden ? "notice bad away" : "field-problem";
    line.setAttribute("role", "alert");
    if (form.hidden) document.querySelector("#main > .page-head").before(line);
    else form.append(line);
  }
  line.textContent = words;
  return line;
}

// Whether the form may be sent now; false after it was kept and the person was told why.
export async function sendable(form) {
  let answer;
  try {
    answer = await fetch(`${base()}/-/session`, { headers: { "hx-request": "true" }, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch { answer = null; }
  if (answer?.ok) { said(form)?.remove(); return true; }
  if (answer?.status === 401) {
    keep(form);
    location.assign(`${base()}/login?${new URLSearchParams({ next: location.pathname.slice(base().length) + location.search, ended: "1" })}`);
    return false;
  }
  const next = touched(form) ? "What you typed is still here; send it again" : "Press the button again";
  say(form, `The control API does not answer, so nothing was sent. ${next} when the API is back.`);
  return false;
}

// Puts back what was kept; most pages have nothing to put back.
export function restore() {
  if (sessionStorage.getItem(KEY)) import("./restored_forms.js").then((forms) => forms.restore(KEY), () => {});
}
