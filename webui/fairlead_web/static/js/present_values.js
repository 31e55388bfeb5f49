// Forms are made once, with their page. What they say of the present follows: a field in which nobody typed has the value in force, so that who
// plans a change plans nobody else's away.

import { typed } from "./kept_forms.js";

function put(field, value) {
  if (!field.matches("select")) {
    field.defaultValue = value;
    field.value = value;
    return;
  }
  if (![...field.options].some((one) => one.value === value)) field.add(new Option(value || "default", value));
  for (const one of field.options) one.toggleAttribute("selected", one.value === value);
  field.value = value;
}

function show() {
  for (const told of document.querySelectorAll("[data-present] [data-form]")) {
    const place = document.getElementById(told.dataset.form);
    const words = place?.querySelector("[data-now]");
    if (!words) continue;
    const now = told.querySelector("span").textContent;
    if (words.textContent !== now) words.textContent = now;
    const form = place.querySelector("form");
    if (form.querySelector("[aria-invalid]")) continue; // it has what was refused
    for (const { dataset, value } of told.querySelectorAll("data")) {
      const field = form.querySelector(`[name="${CSS.escape(dataset.name)}"]`);
      if (field && field.value !== value && !typed(field)) put(field, value);
    }
  }
}

export function start() {
  show(); // what came before this was loaded
  document.addEventListener("htmx:after:swap", show);
}
