// Forms act once, ask before harm, keep Apply off until the name is right, and leave empty filters out of the address.

import { keep, restore, sendable } from "./kept_forms.js";
import { missing } from "./upgrades.js";

const root = document.documentElement;

export function toast(words) {
  const box = document.createElement("p");
  box.className = "toast";
  box.textContent = words;
  document.getElementById("toasts")?.append(box);
  setTimeout(() => box.remove(), 4000);
}

// With those outside the form that name it.
function buttonsOf(form) {
  return [...form.elements].filter((one) => one.matches("button"));
}

// The button that sends the form. One outside of it may be gone when the API has answered, or be another row's: a copy has what was pressed.
function senderOf(form, pressed) {
  if (!pressed || form.contains(pressed)) return pressed;
  const made = document.createElement("button");
  made.hidden = true;
  for (const name of ["name", "value", "formaction"]) if (pressed.hasAttribute(name)) made.setAttribute(name, pressed.getAttribute(name));
  return made;
}

function submitted(event) {
  const form = event.target;
  if (form.dataset.ask && !form.dataset.agreed) {
    event.preventDefault();
    import("./asking.js").then(({ ask }) => ask(form.dataset.ask, () => { form.dataset.agreed = "yes"; form.requestSubmit(); }), missing);
    return;
  }
  // By its attribute: a field named method, as the ratio's, takes the place of the property.
  if (form.getAttribute("method") !== "post" || form.matches(".theme-form, [action$='/logout'], [action$='/login']")) return;
  if (form.dataset.sent === "yes") { form.dataset.sent = "gone"; delete form.dataset.agreed; keep(form, "sent"); return; }
  event.preventDefault();
  if (form.dataset.sent) return;
  form.dataset.sent = "asking";
  const buttons = buttonsOf(form).filter((one) => !one.disabled);
  for (const button of buttons) { button.setAttribute("aria-busy", "true"); button.disabled = true; }
  const sender = senderOf(form, event.submitter);
  sendable(form).then((may) => {
    for (const button of buttons) { button.removeAttribute("aria-busy"); button.disabled = false; }
    delete form.dataset.sent;
    if (!may) { delete form.dataset.agreed; return; } // the next try asks anew
    form.dataset.sent = "yes"; // the next submit goes through, once
    if (sender && !form.contains(sender)) form.append(sender);
    form.requestSubmit(sender ?? undefined);
    if (sender?.hidden) sender.remove();
    for (const button of buttons) { button.setAttribute("aria-busy", "true"); setTimeout(() => { button.disabled = true; }); }
  });
}

function guardName(form) {
  const button = form.querySelector("button");
  if (button.disabled && !form.dataset.guarded) return; // the server says no: nothing typed may change that
  form.dataset.guarded = "yes";
  const right = form.elements.confirm.value.trim() === form.dataset.confirmName && form.elements.reason.value.trim() !== "";
  button.disabled = !right;
}

async function copy(button) {
  const text = button.parentElement.querySelector("pre").textContent;
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    const range = document.createRange();
    range.selectNodeContents(button.parentElement.querySelector("pre"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    toast("Selected: press Ctrl or ⌘ C.");
  }
}

export function setTheme(name) {
  root.dataset.theme = name;
  document.cookie = `fairlead-theme=${name}; path=/; max-age=31536000; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
  const button = document.getElementById("theme-button");
  if (!button) return;
  button.title = `Theme: ${name} (d)`;
  button.setAttribute("aria-label", `Theme: ${name}. Change`);
}

export function nextTheme() {
  setTheme({ auto: "light", light: "dark", dark: "auto" }[root.dataset.theme] ?? "auto");
  toast(`Theme: ${root.dataset.theme}.`);
}

// The line of a text that was refused is selected, and in sight.
function showFault(area) {
  const lines = area.value.split("\n");
  const before = lines.slice(0, Number(area.dataset.line) - 1).join("\n").length;
  area.focus();
  area.setSelectionRange(before && before + 1, before + 1 + lines[area.dataset.line - 1].length);
  area.scrollTop = (area.scrollHeight * (area.dataset.line - 4)) / lines.length;
}

export function start() {
  restore();
  const faulty = document.querySelector("textarea[data-line]:not([data-line='0'])");
  if (faulty) showFault(faulty);
  document.addEventListener("submit", submitted);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
    if (event.target.closest("#theme-button")) { event.preventDefault(); nextTheme(); }
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  for (const form of document.querySelectorAll("form[data-confirm-name]")) {
    guardName(form);
    form.addEventListener("input", () => guardName(form));
  }
  // A page that comes back from the history must let its forms be used again.
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    for (const form of document.querySelectorAll("form[data-sent]")) {
      delete form.dataset.sent;
      for (const button of buttonsOf(form)) button.disabled = false;
    }
  });
  document.addEventListener("htmx:config:request", (event) => {
    const { request, sourceElement } = event.detail.ctx;
    // What a field proposes for another one must not take the place of what was typed there.
    const proposed = sourceElement?.form?.elements[sourceElement.dataset.proposes];
    if (proposed && proposed.value !== proposed.defaultValue) { event.preventDefault(); return; }
    if (request.method !== "GET" || !request.body?.entries) return;
    for (const [name, value] of [...request.body.entries()]) if (value === "") request.body.delete(name);
  });
}
