/* Parameters beside the nominal robot's: only the rows in view exist, so that hundreds are as light as ten. */

import { beside, element, NONE, number, whole, write } from "./format.js";

const NORMAL = 1.96; // standard deviations of a 95 % interval
const ROOM = 12; // letters of a name and its unit on a narrow screen; the row in full says the unit
const MARGIN = 4; // rows beside those in view
const COLUMNS = [
  { key: "name", title: "parameter", more: "", sort: (row) => row.name },
  { key: "nominal", title: "nominal", more: "", sort: (row) => row.nominal },
  { key: "value", title: "identified", more: "± 95 %", sort: (row) => row.value },
  { key: "change", title: "change", more: "", sort: (row) => (inside(row) ? -1 : Math.abs(change(row) ?? -1)) },
  { key: "picture", title: "interval", more: "", sort: (row) => Math.abs(distance(row) ?? -1) },
];

/** Change against the nominal value, as a share of it; null where there is none. */
const change = (row) => (row.identified && known(row.value) && known(row.nominal) && row.nominal !== 0 ? (row.value - row.nominal) / Math.abs(row.nominal) : null);
/** Standard deviations between value and nominal. */
const distance = (row) => (row.identified && row.std > 0 && known(row.value) && known(row.nominal) ? (row.value - row.nominal) / row.std : null);
/** Whether the interval holds the nominal value: then a change in per cent would tell of noise. */
const inside = (row) => Math.abs(distance(row) ?? Infinity) <= NORMAL;
const known = (value) => typeof value === "number" && Number.isFinite(value);

/** In per cent; where the nominal value is next to nothing, in standard deviations. */
function changed(share, sigmas) {
  const signed = (value, unit) => `${value < 0 ? "−" : "+"}${Math.abs(value) < 9.95 ? Math.abs(value).toFixed(1) : whole(Math.abs(value))} ${unit}`;
  if (share !== null && Math.abs(share) < 9.995) return signed(100 * share, "%");
  return sigmas === null ? NONE : signed(sigmas, "σ");
}

export class Parameters {
  constructor(box, scheduler) {
    this.box = box;
    this.scheduler = scheduler;
    this.rows = [];
    this.order = []; // of {group} and {row}: index into rows
    this.by = null; // key of the column that sorts
    this.down = true;
    this.filter = document.getElementById("parameters-filter");
    this.seen = document.getElementById("parameters-seen");
    this.note = document.getElementById("parameters-note");
    this.pool = [];
    this.build();
    scheduler.add("parameters", box, () => this.draw(), { period: 250 });
    box.addEventListener("scroll", () => { this.scheduler.tasks.get("parameters").last = -Infinity; scheduler.touch("parameters"); }, { passive: true });
    for (const input of [this.filter, this.seen]) input.addEventListener("input", () => this.rearrange());
    new ResizeObserver(() => { this.height = 0; scheduler.touch("parameters"); }).observe(box);
  }

  build() {
    this.table = element("table", "listing");
    const head = element("thead"), row = element("tr");
    this.heads = COLUMNS.map((column) => {
      const cell = element("th", column.key), button = element("button", "", column.title);
      cell.scope = "col";
      button.type = "button";
      button.append(element("span", "arrow", ""));
      if (column.more) button.append(element("span", "unit", column.more));
      button.addEventListener("click", () => this.sort(column.key));
      cell.append(button);
      row.append(cell);
      return cell;
    });
    head.append(row);
    this.body = element("tbody");
    this.above = element("tr", "spacer");
    this.below = element("tr", "spacer");
    this.body.append(this.above, this.below);
    this.table.append(head, this.body);
    this.box.append(this.table);
  }

  // -- what it is told --------------------------------------------------------------

  set(message) {
    const rows = message?.rows ?? [], same = rows.length === this.rows.length && rows.every((row, k) => row.joint_or_link === this.rows[k].joint_or_link);
    this.rows = rows;
    if (!same || this.by !== null || this.seen.checked) this.arrange();
    const seen = rows.filter((row) => row.identified).length;
    write(this.note, seen < rows.length ? `${whole(seen)} of ${whole(rows.length)} identified` : rows.length ? `${whole(seen)} base parameters` : "");
    this.scheduler.touch("parameters");
  }

  /** First the column's largest, then its smallest, then by link again. */
  sort(key) {
    const before = this.by;
    if (before !== key) [this.by, this.down] = [key, key !== "name"];
    else if (this.down === (key !== "name")) this.down = !this.down;
    else this.by = null;
    this.rearrange();
  }

  /** The reader wants other rows: from the top. */
  rearrange() {
    this.box.scrollTop = 0;
    this.arrange();
  }

  arrange() {
    const wanted = this.filter.value.trim().toLowerCase();
    const kept = this.rows.flatMap((row, k) => {
      if (this.seen.checked && !row.identified) return [];
      return wanted && !`${row.joint_or_link} ${row.name}`.toLowerCase().includes(wanted) ? [] : [k];
    });
    if (this.by === null) {
      this.order = [];
      let group = null;
      for (const k of kept) {
        if (this.rows[k].joint_or_link !== group) this.order.push({ group: (group = this.rows[k].joint_or_link) });
        this.order.push({ row: k });
      }
    } else {
      const value = COLUMNS.find((column) => column.key === this.by).sort, sign = this.down ? -1 : 1;
      const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : (a ?? -Infinity) - (b ?? -Infinity));
      this.order = kept.sort((a, b) => sign * compare(value(this.rows[a]), value(this.rows[b])) || a - b).map((row) => ({ row }));
    }
    this.heads.forEach((cell, k) => {
      const mine = COLUMNS[k].key === this.by;
      if (mine) cell.setAttribute("aria-sort", this.down ? "descending" : "ascending"); else cell.removeAttribute("aria-sort");
      write(cell.querySelector(".arrow"), mine ? (this.down ? " ↓" : " ↑") : "");
    });
    this.table.setAttribute("aria-rowcount", String(this.order.length + 1));
    this.scheduler.touch("parameters");
  }

  // -- drawing ------------------------------------------------------------------------

  draw() {
    if (!this.height) this.measure();
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - MARGIN);
    const count = Math.min(this.order.length - first, Math.ceil(this.box.clientHeight / this.height) + 2 * MARGIN);
    this.above.style.height = `${first * this.height}px`;
    this.below.style.height = `${Math.max(0, this.order.length - first - count) * this.height}px`;
    while (this.pool.length < count) this.pool.push(this.blank());
    this.pool.forEach((line, k) => {
      line.tr.hidden = k >= count;
      if (k < count) this.fill(line, this.order[first + k], first + k);
    });
    this.drawChosen();
  }

  /** A row is as high as the letters ask for; the picture needs room. */
  measure() {
    const letter = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.height = Math.round(letter * 1.7);
    this.narrow = this.box.clientWidth < 27 * letter;
    this.table.classList.toggle("narrow", this.narrow);
    for (const line of this.pool) line.tr.style.height = `${this.height}px`;
  }

  blank() {
    const tr = element("tr"), name = element("th", "name"), text = element("span", "text"), unit = element("span", "unit");
    name.scope = "row";
    const both = element("div", "both");
    both.append(text, unit);
    name.append(both);
    const cells = ["nominal", "value", "change"].map((kind) => element("td", kind));
    const value = element("span", "text"), spread = element("span", "spread");
    cells[1].append(value, " ", spread);
    const picture = element("td", "picture"), range = element("span", "range"), dot = element("span", "dot"), stated = element("span", "stated", "◇");
    const frame = element("span", "frame-of-range");
    frame.setAttribute("aria-hidden", "true");
    frame.append(range, stated, dot);
    picture.append(frame);
    tr.append(name, ...cells, picture);
    tr.style.height = `${this.height}px`;
    this.body.insertBefore(tr, this.below);
    tr.addEventListener("click", () => this.readOut(tr));
    return { tr, name, text, unit, nominal: cells[0], value, spread, change: cells[2], frame, range, dot, stated };
  }

  fill(line, { group, row: index }, place) {
    line.tr.setAttribute("aria-rowindex", String(place + 2));
    line.tr.classList.toggle("group", group !== undefined);
    line.name.colSpan = group === undefined ? 1 : this.narrow ? 4 : 5;
    line.tr.dataset.row = index ?? "";
    line.tr.classList.toggle("chosen", index !== undefined && index === this.chosen);
    if (group !== undefined) {
      write(line.text, group);
      write(line.unit, "");
      line.name.title = group;
      return;
    }
    const row = this.rows[index], label = this.by === null ? row.name : `${row.joint_or_link} ${row.name}`;
    line.tr.classList.toggle("same", !row.identified);
    write(line.text, label);
    line.name.title = `${row.joint_or_link} ${row.name}`;
    write(line.unit, row.unit ? `[${row.unit}]` : "");
    line.unit.hidden = this.narrow && label.length + row.unit.length > ROOM;
    const spread = known(row.std) ? NORMAL * row.std : null;
    write(line.nominal, number(row.nominal, this.narrow ? 2 : 3));
    write(line.value, row.identified ? beside(row.value, spread) : "as nominal");
    write(line.spread, row.identified && spread !== null ? `± ${number(spread, 2)}` : "");
    write(line.change, inside(row) ? (this.narrow ? "in ±" : "within ±") : changed(change(row), distance(row)));
    line.change.classList.toggle("spread", inside(row));
    this.picture(line, row);
  }

  /** A row in full, below the table: names of identified combinations are long. */
  readOut(tr) {
    if (tr.dataset.row === "") return;
    this.chosen = Number(tr.dataset.row);
    this.scheduler.tasks.get("parameters").last = -Infinity;
    this.scheduler.touch("parameters");
  }

  drawChosen() {
    const row = this.rows[this.chosen];
    if (!row) return;
    const spread = known(row.std) ? ` ± ${number(NORMAL * row.std, 2)}` : "";
    const value = row.identified ? `${number(row.value, 4)}${spread} ${row.unit}` : "not identified, as nominal";
    write(document.getElementById("parameters-whole"), `${row.joint_or_link}: ${row.name} = ${value} (nominal ${number(row.nominal, 4)} ${row.unit})`);
  }

  /** Value and interval against nominal, on a scale of the row's own; nominal in the middle. */
  picture(line, row) {
    const shown = row.identified && known(row.value) && known(row.nominal);
    line.frame.hidden = !shown;
    if (!shown) return;
    const half = known(row.std) ? NORMAL * row.std : 0, reach = 1.15 * (Math.abs(row.value - row.nominal) + half) || 1;
    const at = (value) => `${(50 + (50 * (value - row.nominal)) / reach).toFixed(1)}%`;
    line.range.style.left = at(row.value - half);
    line.range.style.right = `${(50 - (50 * (row.value + half - row.nominal)) / reach).toFixed(1)}%`;
    line.dot.style.left = at(row.value);
    line.frame.classList.toggle("outside", half > 0 && !inside(row));
    line.frame.title = inside(row) ? "nominal is inside the interval" : "nominal is outside the interval";
  }
}
