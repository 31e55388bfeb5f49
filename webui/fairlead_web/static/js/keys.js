// The keys in a dialog, which the next press closes.

export function toggle() {
  const known = document.querySelector("dialog[data-keys]");
  if (known) { known.close(); return; }
  const dialog = document.createElement("dialog");
  dialog.dataset.keys = "";
  dialog.setAttribute("aria-label", "Keys");
  const heading = document.createElement("h2");
  heading.textContent = "Keys";
  const text = document.createElement("p");
  text.textContent = "g then o p h s m d r a: go to a page. j k: rows, Enter: open. t then z ← → a: time range. l: pause. d: theme. / or Ctrl+K: search. Esc: close.";
  const more = document.createElement("p");
  const link = document.createElement("a");
  link.href = `${document.documentElement.dataset.base}/help#shortcuts`;
  link.textContent = "All keys and the glossary";
  more.append(link);
  dialog.append(heading, text, more);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
}
