"""Checks numbers that a page shows twice: they are read at the same instant, compared, and watched over time."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from playwright.sync_api import Page

LONGEST_SECONDS = 2.0
"""The longest time for which two numbers of a page may contradict each other."""

_COMPARED = """() => {
  const found = { compared: 0, disagree: [], shows: "" };
  const all = (css, at = document) => [...at.querySelectorAll(css)];
  const words = (css, at = document) => at.querySelector(css)?.textContent.replace(/\\s+/g, " ").trim();
  const number = (text) => Number((text ?? "").replaceAll(",", "").match(/-?[\\d.]+/)?.[0] ?? NaN);
  const sum = (numbers) => numbers.reduce((total, one) => total + one, 0);
  const same = (what, left, right, slack = 0) => {
    if (left === undefined || right === undefined) return;
    found.compared += 1;
    if (typeof left === "number" ? !(Math.abs(left - right) <= slack) : left !== right) found.disagree.push(`${what}: ${left} and ${right}`);
  };
  const pairOf = (text) => text?.match(/([\\d,]+) (?:\\/|of) ([\\d,]+)/)?.slice(1, 3).map(number);
  const tile = (id, name) => all(`#${id} .stat`).find((one) => words("dt", one) === name);
  const rows = (at, key) => all(`${at} tbody tr`).map((row) => number(words(`[data-label="${key}"]`, row)));
  const state = (at) => words(".state", at) ?? "";
  const chips = (at) => new Map(all(`${at} .chip`).map((chip) => [state(chip), number(chip.textContent.replace(state(chip), ""))]));

  const said = pairOf(words("#workspace .muted"));
  for (const link of all("#sidebar-pools a")) {
    const [name, health] = [link.title.split(": ")[0], link.title.split(": ").slice(1).join(": ")];
    for (const place of all("#workspace, .pool-card, #results tr[data-key]")) {
      if ((words("h1, .workspace-name, h2 a, [data-label=Pool] strong", place)) !== name) continue;
      same(`health of ${name} beside the page and in it`, health, words(".badge:not([title])", place));
    }
  }

  const totals = tile("totals", "Instances serving");
  if (totals) {
    const cards = all("#cards .pool-card").map((card) => pairOf(words("dl.facts dd", card)));
    const [serving, wanted] = pairOf(words(".value", totals));
    same("serving in all and by pool", serving, sum(cards.map((one) => one[0])));
    same("wanted in all and by pool", wanted, sum(cards.map((one) => one[1])));
    const late = words(".note", tile("totals", "In time"))?.match(/^(\\d+) of (\\d+)/);
    const marked = all("#cards .pool-card").filter((card) => card.querySelector("dl.facts .bad"));
    same("pools out of SLO and cards marked", late ? number(late[1]) : 0, marked.length);
    found.shows = `${serving}/${wanted}`;
  }

  const status = tile("status", "Serving");
  if (status) {
    const [serving, wanted] = pairOf(words(".value", status));
    same("serving in the head and in the figures", said?.[0], serving);
    same("wanted in the head and in the figures", said?.[1], wanted);
    const ofRoles = (name) => all("#roles tbody tr").filter((row) => words("th", row) === name).flatMap((row) => all("td", row));
    const role = (name) => sum(ofRoles(name).map((one) => number(one.textContent)));
    same("wanted in the figures and by role", wanted, role("Wanted"));
    same("serving in the figures and by role", serving, role("Serving"));
    same("draining in the figures and by role", number(words(".note", status) ?? "0"), role("Draining"));
    const states = chips("#states");
    for (const name of ["Serving", "Cordoned", "Draining", "Lost"]) same(`${name} by role and by state`, role(name), states.get(name) ?? 0);
    const ttft = all("#status .stat").find((one) => /TTFT p\\d/.test(words("dt", one)) && words(".note", one));
    same("TTFT in the figures and in the status", words(".value", ttft), words("#facts tbody tr td:last-child"));
    found.shows = `${serving}/${wanted}`;
  }

  if (document.querySelector("#results [data-label=Health]")) found.shows = all("#results [data-label=Serving]").map((one) => one.textContent.trim()).join(" ");

  const list = document.querySelector("#results table tr[data-state]")?.closest("#results");
  if (list) {
    const states = all("tr[data-state]", list).map((row) => row.dataset.state);
    same("instances counted and listed", number(words("h2", list)), states.length);
    for (const [name, amount] of chips("#results")) same(`${name} counted and listed`, amount, states.filter((one) => one === name).length);
    same("serving in the head and listed", said?.[0], states.filter((one) => one === "Serving").length);
    for (const row of all("tr[data-state]", list)) same(`state of ${row.dataset.key}`, row.dataset.state, words(".state", row));
    found.shows = states.toSorted().join(" ");
  }

  if (document.querySelector("#shares")) {
    const listed = rows("#shares", "Anchors").filter((one) => one > 0).length;
    same("instances on the ring and with a share", number(words(".value", tile("figures", "On the ring"))), listed);
    same("shares of the keys in all", 100, sum(rows("#shares", "Now")), 0.06 * rows("#shares", "Now").length);
    found.shows = rows("#shares", "Now").join(" ");
  }

  if (document.querySelector("#h-timeline")) {
    const total = number(words("#h-timeline"));
    same("moves in all and by trigger", total, sum(all("[aria-labelledby=h-timeline] .chip").map((one) => number(one.textContent))));
    const hidden = number(words("[aria-labelledby=h-matrix] > p") ?? "0");
    const cells = all(".matrix tbody tr:not(:last-child)").map((row) => all("td:not(.total)", row).map((one) => number(one.textContent) || 0));
    same("moves in all and in the matrix", total, sum(cells.flat()) + hidden);
    all(".matrix tbody tr:not(:last-child) td.total").forEach((one, place) => same(`moves of row ${place}`, number(one.textContent), sum(cells[place])));
    found.shows = String(total);
  }

  const causes = document.querySelector("#h-causes");
  if (causes) {
    const [refused, served, share] = all("#results > .stats .value").map((one) => number(one.textContent));
    same("refused in all and by cause", refused, sum(all(".cause-count strong").map((one) => number(one.textContent))));
    same("share refused", share, refused + served ? 100 * refused / (refused + served) : NaN, 0.06);
    found.shows = `${refused} ${served}`;
  }

  const [now, step] = [words("#instance-state .state"), document.querySelector("#instance-states .steps li")];
  if (now) {
    same("state in the head and the last step", now, step ? all(".state", step).at(-1).textContent : undefined);
    found.shows = now;
  }
  return found;
}"""


@dataclass(kw_only=True)
class Watch:
    """Watches the pages of some tabs: since when they contradict themselves, and everything that they showed."""

    tabs: Mapping[str, Page]
    since: dict[str, float] = field(default_factory=dict)
    lasting: dict[str, float] = field(default_factory=dict)
    """The contradictions that lasted longer than `LONGEST_SECONDS`, with the seconds for which they were seen."""
    compared: dict[str, int] = field(default_factory=dict)
    shown: dict[str, set[str]] = field(default_factory=dict)
    reads: int = 0

    def read(self) -> None:
        """Read every tab once; all numbers of a tab are read at the same instant."""
        now: set[str] = set()
        for name, tab in self.tabs.items():
            found = tab.evaluate(_COMPARED)
            at = time.monotonic()
            self.compared[name] = max(self.compared.get(name, 0), found["compared"])
            self.shown.setdefault(name, set()).add(found["shows"])
            for one in found["disagree"]:
                what = f"{name}: {one.partition(':')[0]}"
                now.add(what)
                seconds = at - self.since.setdefault(what, at)
                if seconds > LONGEST_SECONDS:
                    self.lasting[f"{name}: {one}"] = seconds
        self.since = {what: at for what, at in self.since.items() if what in now}
        self.reads += 1
