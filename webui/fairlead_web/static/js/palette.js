// The palette: what the search page finds, while one types, over any page.

const base = document.documentElement.dataset.base;
const WAIT = 120;
let stylesheet;

function styled() {
  if (stylesheet || document.querySelector(".search-form")) return;
  stylesheet = document.createElement("link");
  stylesheet.rel = "stylesheet";
  stylesheet.href = document.querySelector("[data-palette]").dataset.palette;
  document.head.append(stylesheet);
}

export function open(typed) {
  const known = document.querySelector("dialog.palette");
  if (known) { known.close(); return; }
  styled();
  const dialog = document.createElement("dialog");
  dialog.className = "palette";
  dialog.setAttribute("aria-label", "Search");
  const field = document.createElement("input");
  Object.assign(field, { type: "search", maxLength: 200, autocomplete: "off", spellcheck: false });
  field.placeholder = "Go to a page, change a pool, or find any part of a name or id";
  field.value = typed;
  field.setAttribute("aria-label", "Page, change, or any part of a name or id");
  field.setAttribute("aria-controls", "palette-found");
  const list = document.createElement("div");
  list.id = "palette-found";
  list.className = "found";
  const said = document.createElement("p");
  said.className = "visually-hidden";
  said.setAttribute("role", "status");
  dialog.append(field, list, said);

  let timer = 0;
  let asked = null;

  const links = () => [...list.querySelectorAll("[data-found]")];
  function mark(step) {
    const all = links();
    if (!all.length) return;
    const now = all.findIndex((one) => one.classList.contains("cursor"));
    const next = all[(now + step + all.length) % all.length];
    all[now]?.classList.remove("cursor");
    next.classList.add("cursor");
    next.scrollIntoView({ block: "nearest" });
    said.textContent = next.innerText;
  }

  async function look() {
    asked?.abort();
    asked = new AbortController();
    const part = field.value.trim();
    try {
      const answer = await fetch(`${base}/search?${new URLSearchParams({ q: part, pool: document.documentElement.dataset.pool })}`, { headers: { "Fairlead-Regions": "found" }, signal: asked.signal });
      const found = answer.ok && !answer.redirected ? new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("found") : null;
      if (!found) { list.textContent = "The search does not answer. Enter opens its page."; return; }
      for (const one of found.querySelectorAll("[id]")) one.id = `palette-${one.id}`;
      for (const one of found.querySelectorAll("[aria-labelledby]")) one.setAttribute("aria-labelledby", `palette-${one.getAttribute("aria-labelledby")}`);
      list.replaceChildren(...found.childNodes);
      const count = links().length;
      said.textContent = count === 1 ? "1 found" : `${count} found`;
      links()[0]?.classList.add("cursor");
    } catch (error) {
      if (error.name !== "AbortError") list.textContent = "The search does not answer. Enter opens its page.";
    }
  }

  field.addEventListener("input", () => { clearTimeout(timer); asked?.abort(); list.querySelector(".cursor")?.classList.remove("cursor"); timer = setTimeout(look, WAIT); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") mark(1);
    else if (event.key === "ArrowUp") mark(-1);
    else if (event.key === "Enter") location.assign(list.querySelector(".cursor")?.href ?? `${base}/search?q=${encodeURIComponent(field.value)}`);
    else return;
    event.preventDefault();
  });
  dialog.addEventListener("close", () => { clearTimeout(timer); asked?.abort(); dialog.remove(); });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  field.focus();
  look();
}
