// Asks before harm, in a dialog of the page.

export function ask(words, agree) {
  const dialog = document.createElement("dialog");
  const text = document.createElement("p");
  text.textContent = words;
  text.id = "asked";
  dialog.setAttribute("aria-labelledby", text.id);
  const actions = document.createElement("p");
  actions.className = "actions";
  for (const [label, kind, act] of [["Cancel", "", () => {}], ["Continue", "primary danger", agree]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.className = kind;
    button.addEventListener("click", () => { dialog.close(); act(); });
    actions.append(button);
  }
  dialog.append(text, actions);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
