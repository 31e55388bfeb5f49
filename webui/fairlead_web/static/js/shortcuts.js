// Single-key shortcuts, off when the reader says so (settings) and while something is being typed.

import { nextTheme } from "./forms.js";
import { toggle } from "./live.js";

const root = document.documentElement;
const base = () => root.dataset.base;
const pool = () => root.dataset.pool;
const GO = {
  o: () => "/", p: () => "/pools", s: () => "/sessions", m: () => "/migrations", d: () => "/decisions", r: () => "/rejections", a: () => "/audit",
  h: () => (pool() ? `/pools/${pool().split("/").map(encodeURIComponent).join("/")}/heatmap` : "/pools"),
};
let prefix = "";
let prefixTimer = 0;
let typed = null; // what is typed while the palette is being loaded, and belongs into it

function press(selector) {
  const link = document.querySelector(selector);
  if (link) location.assign(link.href);
}

function rows(step) {
  const all = [...document.querySelectorAll("[data-rows] tbody tr")];
  if (!all.length) return;
  let now = all.findIndex((row) => row.classList.contains("cursor"));
  if (now < 0) now = all.findIndex((row) => row.contains(document.activeElement)); // a refresh takes the mark away, not the focus
  const next = all[Math.max(0, Math.min(all.length - 1, now + step))];
  all[now]?.classList.remove("cursor");
  next.classList.add("cursor");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
}

// Where a script cannot be loaded, the page that does the same is opened.
const help = () => import("./keys.js").then((keys) => keys.toggle(), () => location.assign(`${base()}/help#shortcuts`));
const search = () => {
  typed ??= "";
  import("./palette.js").then((palette) => { palette.open(typed ?? ""); typed = null; }, () => location.assign(`${base()}/search`));
};

function plain(key) {
  switch (key) {
    case "j": rows(1); return true;
    case "k": rows(-1); return true;
    case "l": toggle(); return true;
    case "d": nextTheme(); return true;
    case "?": help(); return true;
    case "/": search(); return true;
    default: return false;
  }
}

function pressed(event) {
  if (typed !== null && event.key.length === 1 && !(event.ctrlKey || event.metaKey || event.altKey)) { typed += event.key; event.preventDefault(); return; }
  if (root.dataset.shortcuts === "off" || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest("input, select, textarea, [contenteditable]")) return;
  if (event.target.closest("[data-keyboard]") && event.key !== "?") return;
  const before = prefix;
  prefix = "";
  clearTimeout(prefixTimer);
  if (before === "g" && GO[event.key]) { location.assign(base() + GO[event.key]()); event.preventDefault(); return; }
  if (before === "t") {
    const target = { z: "[data-range=out]", ArrowLeft: "[data-range=earlier]", ArrowRight: "[data-range=later]", a: "[data-permalink]" }[event.key];
    if (target) { press(target); event.preventDefault(); return; }
  }
  if (event.key === "g" || event.key === "t") {
    prefix = event.key;
    prefixTimer = setTimeout(() => { prefix = ""; }, 1500);
    return;
  }
  if (plain(event.key)) event.preventDefault();
}

export function start() {
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    search();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-palette]") || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    search();
  });
  document.addEventListener("keydown", pressed);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll("details.menu[open]")) { menu.open = false; menu.querySelector("summary").focus(); }
  });
}
