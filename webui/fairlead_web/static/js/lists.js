// The newest rows of a list come by themselves and are put on top of the rows shown; what was known is replaced, what is too much falls off.

const MOST = 50;

export function take() {
  for (const box of document.querySelectorAll("[data-newest]")) {
    const shown = document.querySelector(`[data-list="${box.dataset.newest}"]:not([data-newest] *) tbody`);
    const rows = [...box.querySelectorAll("tbody tr[data-key]")];
    if (!shown || !rows.length) continue;
    const fresh = [];
    for (const row of rows) {
      const known = shown.querySelector(`[data-key="${CSS.escape(row.dataset.key)}"]`);
      if (!known) fresh.push(row);
      else if (known.textContent !== row.textContent && !known.contains(document.activeElement)) known.replaceWith(row);
    }
    shown.prepend(...fresh);
    while (shown.rows.length > MOST && !shown.lastElementChild.contains(document.activeElement)) shown.lastElementChild.remove();
    box.replaceChildren();
  }
}
