// One chart: lines of its figure's metrics, drawn by uPlot, with a legend, marks of what happened, and the arrow keys. The legend has the
// values at the crosshair; without one the figures of the whole range, as the page's tiles have them, and of what is no sum or mean its last value.

import { alone, axisTimes, bounds, knownUntil, labelOf, lineAt, Lines, rangeValues, shape, shortValue, stepWords, summary, tables, value } from "./chart_data.js";
import { shown, zoneOfAxes } from "./times.js";

const NEAR = 6;
const SAY_MS = 300;

const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seconds = (text) => new Date(text).getTime() / 1000;

export class Chart {
  constructor(figure, uPlot, { tell, zoom }) {
    this.figure = figure;
    this.uPlot = uPlot;
    this.tell = tell;
    this.zoom = zoom;
    this.plot = figure.querySelector("[data-plot]");
    this.known = new Lines();
    this.lines = [];
    this.at = null;
    this.plot.addEventListener("keydown", (event) => this.key(event));
    // A legend that went back to its last values at once would move away from under the pointer that leaves the plot for it.
    figure.addEventListener("focusout", (event) => { if (!figure.contains(event.relatedTarget)) this.tell(null, this); });
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.plot);
  }

  get legend() {
    return this.figure.querySelector("[data-legend]");
  }

  update(series, lines, marks) {
    this.misses = 0;
    delete this.figure.dataset.stale;
    const before = shape(this.lines);
    this.range = [seconds(series.start), seconds(series.end)];
    this.lines = this.known.take(lines, (one) => labelOf(this.figure, one));
    this.marks = marks.map((one) => ({ ...one, from: seconds(one.at), to: one.until ? seconds(one.until) : null }));
    this.unit = lines[0]?.unit;
    this.nothing(!lines.some((one) => one.values.some((each) => each !== null)));
    if (this.drawn && shape(this.lines) === before) this.drawn.setData(this.data());
    else this.build();
    this.plot.setAttribute("aria-label", summary(this.figure.dataset.title, this.lines, this.range, rangeValues()));
    this.readout();
    this.figure.dataset.ready = "yes";
  }

  nothing(empty) {
    this.figure.classList.toggle("chart-empty", empty);
    this.figure.querySelector("[data-nothing]").hidden = !empty;
  }

  stacked() {
    return this.figure.dataset.kind === "stack";
  }

  shownLines() {
    return this.lines.filter((one) => !one.hidden);
  }

  data() {
    const lines = this.shownLines();
    return lines.length ? this.uPlot.join(...tables(lines, this.stacked())) : [[]];
  }

  build() {
    this.drawn?.destroy();
    this.plot.tabIndex = 0;
    this.plot.dataset.keyboard = "";
    this.plot.setAttribute("role", "group");
    this.plot.setAttribute("aria-roledescription", "chart");
    this.drawLegend();
    const font = `11px ${token("--font") || "system-ui, sans-serif"}`;
    const axis = { font, stroke: () => token("--muted"), grid: { stroke: () => token("--line"), width: 1 }, ticks: { show: false } };
    const lines = this.stacked() ? this.shownLines().toReversed() : this.shownLines();
    const options = {
      ...this.box(),
      padding: [10, 18, 0, 0],
      legend: { show: false },
      tzDate: (at) => this.uPlot.tzDate(new Date(at * 1000), zoneOfAxes()),
      scales: { x: { range: () => this.range }, y: { range: () => bounds(this.shownLines(), this.figure.dataset.floor, this.stacked()) } },
      axes: [
        { ...axis, size: 24, gap: 4, space: 64, values: (_, splits, index, space, step) => axisTimes(splits, step, this.range) },
        { ...axis, size: 58, gap: 6, space: 28, values: (_, splits) => splits.map((one) => shortValue(one, this.unit, splits[1] - splits[0])) },
      ],
      series: [{}, ...lines.map((one) => this.series(one))],
      cursor: {
        y: false,
        points: { show: !this.stacked(), size: 6 },
        drag: { x: true, y: false, setScale: false, dist: 5 },
      },
      hooks: {
        drawClear: [(drawn) => this.drawMarks(drawn, true)],
        draw: [(drawn) => this.drawMarks(drawn, false)],
        setCursor: [(drawn) => { if (this.drawn) this.tell(drawn.cursor.left < 0 ? null : drawn.posToVal(drawn.cursor.left, "x"), this); }],
        setSelect: [(drawn) => this.selected(drawn)],
        ready: [() => this.point(this.at, false)], // built again, it has the crosshair where it was
      },
    };
    this.drawn = null;
    this.plot.querySelector(".uplot")?.remove();
    this.drawn = new this.uPlot(options, this.data(), this.plot);
  }

  series(one) {
    const colour = () => token(one.limit ? "--muted" : `--s${one.colour}`);
    const bars = this.stacked() || this.figure.dataset.kind === "bars";
    return {
      label: one.label,
      stroke: colour,
      width: bars ? 0 : one.limit ? 1.25 : 1.75,
      dash: one.limit ? [5, 4] : undefined,
      fill: bars ? colour : undefined,
      points: {
        show: one.drawn === "points", size: 6, fill: colour,
        ...(one.drawn === "line" && !bars && { filter: (drawn, at) => alone(drawn.data[at]) }),
      },
      spanGaps: one.drawn === "points",
      ...(bars && { paths: this.uPlot.paths.bars({ size: [0.9, 24] }) }),
      ...(one.drawn === "steps" && { paths: this.uPlot.paths.stepped({ align: 1 }) }),
    };
  }

  drawLegend() {
    const held = this.lines.find((one) => one.button && one.button === document.activeElement);
    this.legend.replaceChildren(...this.lines.map((one) => this.entry(one)));
    held?.button.focus({ preventScroll: true });
  }

  entry(one) {
    const button = document.createElement("button");
    const name = document.createElement("span");
    button.type = "button";
    button.className = `chart-line ${one.limit ? "chart-limit" : `stroke-of-${one.colour}`}`;
    button.setAttribute("aria-pressed", String(!one.hidden));
    button.title = "Show or hide this line";
    name.textContent = one.label;
    one.cell = document.createElement("strong");
    one.button = button;
    button.append(name, one.cell);
    button.addEventListener("click", () => {
      one.hidden = !one.hidden && this.shownLines().length > 1;
      this.build();
      this.readout();
    });
    const row = document.createElement("li");
    row.append(button);
    return row;
  }

  box() {
    return { width: Math.max(200, this.plot.clientWidth), height: this.plot.clientHeight || 150 };
  }

  resize() {
    const wide = this.plot.clientWidth;
    if (this.drawn && wide && wide !== this.drawn.width) this.drawn.setSize(this.box());
  }

  restyle() {
    if (this.drawn) this.build();
  }

  // Whether it is on the page as it was drawn: what htmx swaps in may have taken its place.
  get intact() {
    return Boolean(this.drawn) && this.plot.contains(this.drawn.root);
  }

  // The figure is as the server sends it again: the next update draws anew.
  erased() {
    this.drawn?.destroy();
    this.drawn = null;
  }

  // Windows of schedules behind the lines, what else happened in front of them.
  drawMarks(drawn, behind) {
    const { ctx, bbox } = drawn;
    const ratio = devicePixelRatio || 1;
    const place = (at) => drawn.valToPos(at, "x", true);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, 0, bbox.width, bbox.top + bbox.height);
    ctx.clip();
    for (const mark of this.marks) {
      const x = place(mark.from);
      if (behind && (mark.kind === "schedule" || (mark.kind === "comment" && mark.to))) {
        ctx.fillStyle = token("--accent-soft");
        ctx.globalAlpha = 0.6;
        ctx.fillRect(x, bbox.top, Math.max(ratio, (mark.to ? place(mark.to) : bbox.left + bbox.width) - x), bbox.height);
      }
      ctx.globalAlpha = 1;
      if (behind) continue;
      const colour = mark.kind === "failure" ? token("--bad") : token("--frame");
      ctx.strokeStyle = colour;
      ctx.fillStyle = colour;
      ctx.lineWidth = ratio;
      ctx.setLineDash(mark.kind === "failure" ? [] : [3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      this.head(ctx, mark.kind, x, bbox.top, 3.5 * ratio);
    }
    ctx.restore();
  }

  // Kinds differ by shape, not by colour alone.
  head(ctx, kind, x, y, size) {
    ctx.beginPath();
    if (kind === "failure") ctx.rect(x - size, y - 2 * size, 2 * size, 2 * size);
    else if (kind === "scaled") { ctx.moveTo(x - size, y); ctx.lineTo(x + size, y); ctx.lineTo(x, y - 2 * size); }
    else if (kind === "revision") ctx.arc(x, y - size, size, 0, 7);
    else if (kind === "comment") { ctx.moveTo(x - size, y - size); ctx.lineTo(x, y); ctx.lineTo(x + size, y - size); ctx.lineTo(x, y - 2 * size); }
    else { ctx.moveTo(x, y); ctx.lineTo(x + 2 * size, y - size); ctx.lineTo(x, y - 2 * size); }
    ctx.fill();
  }

  selected(drawn) {
    const { left, width } = drawn.select;
    if (width < 5) return;
    const [from, to] = [drawn.posToVal(left, "x"), drawn.posToVal(left + width, "x")];
    drawn.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoom(from, to);
  }

  point(at, mine) {
    this.at = at;
    if (!this.drawn) return;
    const inside = at !== null && at >= this.range[0] && at <= this.range[1];
    if (!mine) this.drawn.setCursor({ left: inside ? this.drawn.valToPos(at, "x") : -10, top: inside ? 10 : -10 }, false);
    this.readout();
  }

  readout() {
    const when = this.figure.querySelector("[data-when]");
    const near = this.at === null || !this.drawn ? [] : this.marks.filter((one) => Math.abs(this.drawn.valToPos(one.from, "x") - this.drawn.valToPos(this.at, "x")) <= NEAR);
    const whole = this.at === null ? rangeValues() : {};
    const ranged = this.lines.some((one) => whole[one.id.trim()] !== undefined) && this.figure.dataset.range;
    when.textContent = this.at === null ? this.figure.dataset.stale ?? [ranged, when.dataset.note].filter(Boolean).join(" · ") : [shown(new Date(this.at * 1000)).replace(/^\d+-\d+-\d+ /, ""), ...near.map((one) => one.words)].join(" · ");
    when.title = when.textContent;
    for (const one of this.lines) {
      const found = lineAt(one, this.at);
      one.cell.textContent = whole[one.id.trim()] ?? (found === undefined ? "no data" : value(found, one.unit, one.metric) + this.moment(one));
    }
  }

  // Of when the last value of a line is: what was measured is the mean of its step, what is in force or known at moments is of an instant.
  moment(line) {
    if (this.at !== null || line.limit) return "";
    const until = knownUntil(line), measured = line.drawn === "line", step = stepWords(line.step_seconds);
    if (this.figure.dataset.live === "yes" && this.range[1] - until < Math.max(60, 2 * line.step_seconds)) return measured ? ` in the last ${step}` : " now";
    return `${measured ? ` in the ${step} to` : " at"} ${shown(new Date(until * 1000)).replace(/^\d+-\d+-\d+ /, "")}`;
  }

  key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    const step = this.lines[0]?.step_seconds;
    if (!step || !(event.key in moves || event.key === "Home" || event.key === "End")) return;
    event.preventDefault();
    const [from, to] = this.range;
    const asked = event.key === "Home" ? from + step / 2 : event.key === "End" ? to - step / 2 : (this.at ?? to - step / 2) + moves[event.key] * step;
    const at = Math.max(from, Math.min(to, asked));
    this.tell(at, null);
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => {
      this.figure.querySelector("[data-say]").textContent = `${this.figure.querySelector("[data-when]").textContent}: ${this.lines.map((one) => `${one.label} ${one.cell.textContent}`).join(", ")}`;
    }, SAY_MS);
  }

  // Its lines could not be had. Once may be chance; then it says of when they are.
  missed() {
    this.misses += 1;
    if (this.misses < 2) return;
    this.figure.dataset.stale = `As of ${shown(new Date(this.range[1] * 1000))}: newer lines cannot be had`;
    this.readout();
  }

  end() {
    this.sizes.disconnect();
    this.drawn?.destroy();
  }
}
