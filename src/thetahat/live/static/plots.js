/* Figures of lines that grow: drawn by Plotly in the report's colours, following the stream until a reader zooms. */

import { Series } from "./line_buffer.js";
import { element, number, plain, write } from "./format.js";

const NARROW = 520; // [px]
const LEAST = 240, MOST = 1200; // points of a line that are drawn
const ALL = 8000; // points of a figure that are drawn
const EVERY = 180; // [ms] between two drawings of one figure, at least
const BEYOND = 0.6; // of the measured torque's range, that others may go beyond it
const MARGIN = { l: 52, r: 12, t: 10, b: 40 };
const DASHES = { dash: "5 3", dot: "1.5 2.5", dashdot: "5 2 1.5 2", solid: "" };

const IDENTIFIED = "identified model in use"; // the legend's name of the ground that grows while that model is used

// R² on a scale that is spread out near one: 0.9, 0.99, 0.999 are equally far apart.
const MARKS = [0, 0.9, 0.99, 0.999, 0.9999, 0.99999];
const TOPS = [3.3, 4.3, 5.3]; // ends of the scale: three to five nines; more is perfect
const spread = (r2) => -Math.log10(Math.max(1 - r2, 1e-9));

export class Plot {
  constructor(id, node, scheduler) {
    this.id = id;
    this.node = node;
    this.scheduler = scheduler;
    this.card = node.closest(".card");
    this.legend = this.card.querySelector(".legend");
    this.hidden = new Set(); // names of lines that the reader does not want to see
    this.met = new Set(); // names of lines there ever were
    this.figure = null;
    this.lines = []; // Series, or null for what does not grow
    this.usual = null; // [s] that it shows of the past; null: all
    this.follows = id === "torque"; // the first line decides the range of y
    this.spread = false; // of R² alone
    this.top = 0; // which of TOPS
    this.zoomed = null; // {x, y}: ranges that the reader chose
    this.held = false; // the reader drags: drawing would take it out of the hand
    this.stream = { t: 0, span: null, identified: false, chosen: null }; // chosen: name of the reader's joint
    this.revision = 0;
    scheduler.add(id, node, () => this.draw(), { period: EVERY, heavy: true });
    new ResizeObserver(() => { this.layout = null; scheduler.touch(id); }).observe(node);
  }

  /** A new figure {data, layout}. */
  set(figure) {
    this.figure = figure;
    this.lines = figure.data.map((trace) => (trace.x && trace.x.some((x) => x !== null) ? new Series(trace.x, trace.y) : null));
    for (const { name, visible } of figure.data) {
      if (!this.met.has(name) && visible === "legendonly") this.hidden.add(name);
      this.met.add(name);
    }
    this.layout = null;
    this.drawLegend();
    this.scheduler.touch(this.id);
  }

  /** New points of every line: [[x, y], …]. */
  extend(points) {
    points.forEach((each, k) => {
      if (!each || !each[0].length || k >= this.figure.data.length) return;
      if (this.lines[k] === null) this.lines[k] = new Series();
      this.lines[k].extend(each[0], each[1]);
    });
    this.scheduler.touch(this.id);
  }

  follow() {
    this.zoomed = null;
    this.card.classList.remove("zoomed");
    this.scheduler.touch(this.id);
  }

  /** R² evenly, or spread out near one. */
  scale(on) {
    this.spread = on;
    this.follow();
    this.restyle();
  }

  restyle() {
    this.layout = null;
    this.scheduler.touch(this.id);
  }

  // -- what Plotly gets ---------------------------------------------------------

  get end() {
    let end = this.stream.t;
    for (const line of this.lines) if (line && line.length) end = Math.max(end, line.last);
    return end;
  }

  range() {
    const end = this.end;
    let begin = end;
    for (const line of this.lines) if (line && line.length) begin = Math.min(begin, line.first);
    if (this.stream.span !== null) begin = Math.max(begin, end - this.stream.span);
    return begin < end ? [begin, end] : [end - 1, end];
  }

  data(range) {
    const shown = this.lines.filter((line, k) => line && !this.hidden.has(this.figure.data[k].name)).length || 1;
    const most = Math.round(Math.min(MOST, Math.max(LEAST, Math.min(this.node.clientWidth, ALL / shown))));
    return this.figure.data.map((trace, k) => {
      const line = this.lines[k];
      const out = { ...trace, visible: !this.hidden.has(trace.name) };
      if (trace.line && this.stream.chosen && [this.stream.chosen, `joint ${this.stream.chosen}`].includes(plain(trace.name))) out.line = { ...trace.line, width: (trace.line.width ?? 1.5) + 1.6 };
      if (!line) return out;
      const points = line.between(range[0], range[1], most);
      return Object.assign(out, this.spread ? this.spreadOut(points) : points);
    });
  }

  /** R² on the spread scale, which grows with what there is to show. */
  spreadOut({ x, y }) {
    const best = spread(extremes(y)?.[1] ?? 0);
    while (this.top < TOPS.length - 1 && best > TOPS[this.top] - 0.1) {
      this.top += 1;
      this.layout = null;
    }
    const most = TOPS[this.top] - 0.06;
    return { x, y: y.map((r2) => Math.min(most, spread(r2))), customdata: y, hovertemplate: "%{customdata:.5f}" };
  }

  /** A range of y that the first line, what was measured, decides: models that know little yet predict anything. */
  measuredRange(data) {
    const ends = data.map(({ y, visible }) => (visible && y?.length ? extremes(y) : null));
    const note = this.card.querySelector(".head .aside");
    if (!ends[0] || !(ends[0][1] > ends[0][0])) {
      write(note, "");
      return null;
    }
    const [low, high] = ends[0], room = BEYOND * (high - low), all = ends.filter(Boolean);
    const bottom = Math.min(...all.map((each) => each[0])), top = Math.max(...all.map((each) => each[1]));
    const past = top > high + room ? top : bottom < low - room ? bottom : null;
    write(note, past === null ? "" : `▲ a line exceeds the axis: ${number(past)}`);
    const begin = Math.max(bottom, low - room), end = Math.min(top, high + room), edge = 0.06 * (end - begin);
    return [begin - edge, end + edge];
  }

  /** The figure's layout in the page's colours, made anew when size or theme changed. */
  themed() {
    if (this.layout) return this.layout;
    const width = this.node.clientWidth, narrow = width < NARROW;
    const layout = structuredClone(thetahatFigures.themed(this.figure.layout, width));
    layout.width = width;
    layout.height = this.node.clientHeight;
    layout.autosize = false;
    layout.showlegend = false; // ours takes no room from the lines and wraps
    layout.margin = { ...MARGIN, ...(this.figure.layout.yaxis2 ? { r: 48 } : {}) };
    for (const key of Object.keys(layout)) {
      if (!/^[xy]axis\d*$/.test(key)) continue;
      const across = key[0] === "x";
      layout[key] = { hoverformat: across ? ".2f" : ".4~g", nticks: across ? (narrow ? 5 : 10) : 6, ...layout[key], title: { ...layout[key].title, standoff: 6 } };
    }
    layout.xaxis.unifiedhovertitle = { text: "at %{x:.2f} s" };
    if (narrow) layout.hovermode = "closest";
    if (this.spread) Object.assign(layout.yaxis, { tickmode: "array", tickvals: MARKS.map(spread), ticktext: MARKS.map(String), range: [spread(-0.06), TOPS[this.top]] });
    this.layout = layout;
    return layout;
  }

  shapes(end) {
    const shapes = this.figure.layout.shapes, colour = this.figure.data.find((trace) => trace.name === IDENTIFIED)?.marker?.color;
    if (!shapes || !colour || !this.stream.identified) return shapes;
    const last = shapes.findLastIndex((shape) => shape.type === "rect" && shape.fillcolor === colour);
    return shapes.map((shape, k) => (k === last ? { ...shape, x1: Math.max(shape.x1 ?? end, end) } : shape));
  }

  draw() {
    if (!this.figure || this.node.clientWidth < 40 || this.node.clientHeight < 40) return;
    if (this.held) {
      this.scheduler.touch(this.id);
      return;
    }
    const range = this.zoomed?.x ?? this.range(), data = this.data(range);
    const layout = structuredClone(this.themed()); // Plotly writes into what it is given
    this.revision += 1;
    layout.datarevision = this.revision;
    layout.shapes = this.shapes(this.end)?.map((shape) => (this.spread && shape.yref !== "paper" ? { ...shape, y0: spread(shape.y0), y1: spread(shape.y1) } : shape));
    Object.assign(layout.xaxis, { range, autorange: false });
    if (this.zoomed?.y) Object.assign(layout.yaxis, { range: this.zoomed.y, autorange: false });
    const config = {
      displaylogo: false, doubleClick: false, showTips: false, modeBarButtons: [["zoom2d", "pan2d", "toImage"]],
      toImageButtonOptions: { format: "svg", filename: `thetahat-${this.id.replace(/\W+/g, "-")}` },
    };
    const measured = this.follows && this.measuredRange(data);
    if (measured && !this.zoomed) Object.assign(layout.yaxis, { range: measured, autorange: false });
    Plotly.react(this.node, data, layout, config).then(() => { this.node.dataset.drawn = this.node.dataset.panel; });
    if (!this.listening) this.listen();
  }

  listen() {
    this.listening = true;
    this.node.addEventListener("pointerdown", () => { this.held = true; }, true);
    for (const end of ["pointerup", "pointercancel", "blur"]) window.addEventListener(end, () => { this.held = false; });
    this.node.on("plotly_relayout", (change) => {
      if (!Object.keys(change).some((key) => /^[xy]axis\.range/.test(key))) return;
      const { xaxis, yaxis } = this.node.layout;
      this.zoomed = { x: [...xaxis.range], y: yaxis.autorange === false && yaxis.range ? [...yaxis.range] : null };
      this.card.classList.add("zoomed");
      this.scheduler.touch(this.id);
    });
    this.node.on("plotly_doubleclick", () => this.follow());
    const button = element("button", "follow", "Follow again");
    button.type = "button";
    button.addEventListener("click", () => this.follow());
    this.node.parentElement.append(button);
  }

  // -- legend ---------------------------------------------------------------------

  drawLegend() {
    const items = this.figure.data.filter((trace) => trace.showlegend !== false && trace.name);
    const key = JSON.stringify(items.map((trace) => [trace.name, trace.line, trace.marker]));
    if (key === this.legendKey) return;
    this.legendKey = key;
    this.legend.replaceChildren(...items.map((trace) => this.legendItem(trace)));
  }

  legendItem(trace) {
    const button = element("button", "entry");
    button.type = "button";
    button.append(swatch(trace), element("span", "name", plain(trace.name)));
    const grows = trace.x && (trace.x.length === 0 || trace.x.some((x) => x !== null));
    if (!grows) {
      button.disabled = true; // a ground or a threshold
      return button;
    }
    const show = () => button.setAttribute("aria-pressed", String(!this.hidden.has(trace.name)));
    button.title = `${plain(trace.name)}: click to hide or show`;
    button.addEventListener("click", () => {
      if (!this.hidden.delete(trace.name)) this.hidden.add(trace.name);
      show();
      this.scheduler.touch(this.id);
    });
    show();
    return button;
  }
}

/** Least and largest of numbers among which there are gaps. */
function extremes(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

/** A piece of the line, or a spot of the ground, as it is drawn. */
export function swatch(trace) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 22 10");
  svg.setAttribute("aria-hidden", "true");
  const ground = trace.mode === "markers";
  const shape = document.createElementNS(space, ground ? "rect" : "line");
  const colour = (ground ? trace.marker?.color : trace.line?.color) ?? "currentColor";
  const attributes = ground
    ? { x: 4, y: 0.5, width: 14, height: 9, fill: colour, stroke: "#808790", "stroke-width": 1 }
    : { x1: 1, x2: 21, y1: 5, y2: 5, stroke: colour, "stroke-width": 2.4, "stroke-dasharray": DASHES[trace.line?.dash ?? "solid"] ?? "" };
  for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, String(value));
  svg.append(shape);
  return svg;
}
