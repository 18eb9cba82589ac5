/* The gate in words, the figures it goes by, and R² of every joint now. */

import { element, NONE, number, score, seconds, whole, write } from "./format.js";

const SIGNS = { open: "M14 25l7 7 14-15", closed: "M16 16l16 16M32 16L16 32", forced: "M24 14v13M24 33v.5", unknown: "M16 24h16" };
const MARKS = { open: "✓", closed: "✕", forced: "!", unknown: "–" };
const MANY = 16; // joints
const REORDER = 2000; // [ms] between two orders of the joints
const DECADES = 3; // of 1 − R² that a bar spans

const by = (id) => document.getElementById(id);

/** Where R² stands on a bar, 0 … 1: 0.9, 0.99, 0.999 are equally far apart. */
export const along = (r2) => Math.min(1, Math.max(0, -Math.log10(Math.max(1 - r2, 1e-9)) / DECADES));

export class Gate {
  constructor() {
    this.facts = new Map();
    this.chips = [];
    this.state = null;
    this.hello = null;
    this.t = 0;
    for (const [name, title] of [
      ["r2", "R² held out"], ["fit", "R² fit"], ["good", "Joints above threshold"], ["fill", "Buffer, samples"], ["rank", "Rank"],
      ["condition", "Condition number"], ["cycle", "Cycle, p99"], ["dropped", "Dropped samples"],
      ["contact", "External torque"], ["payload", "Payload"],
    ]) this.addFact(name, title);
    by("worst").addEventListener("click", () => this.sortWorst(by("worst").getAttribute("aria-pressed") !== "true"));
    new IntersectionObserver(([entry]) => { by("brief").hidden = entry.isIntersecting; }, { rootMargin: "-60px 0px 0px" }).observe(by("gate-word"));
  }

  addFact(name, title) {
    const box = element("div", "fact"), value = element("dd"), big = element("span", "value", NONE), more = element("span", "more");
    const bar = element("span", "meter"), inside = element("span", "full"), mark = element("span", "mark");
    bar.append(inside, mark);
    bar.setAttribute("aria-hidden", "true");
    value.append(big, " ", more, bar);
    box.append(element("dt", "", title), value);
    box.dataset.fact = name;
    by("facts").append(box);
    this.facts.set(name, { box, big, more, bar, inside, mark });
  }

  setFact(name, big, more = "", { share = null, mark = null, judged = "" } = {}) {
    const fact = this.facts.get(name);
    write(fact.big, big);
    write(fact.more, more);
    fact.bar.hidden = share === null;
    if (share !== null) fact.inside.style.width = `${(100 * share).toFixed(1)}%`;
    fact.mark.hidden = mark === null;
    if (mark !== null) fact.mark.style.left = `${(100 * mark).toFixed(1)}%`;
    fact.box.dataset.judged = judged;
  }

  // -- what it is told ------------------------------------------------------------

  set(hello, choose) {
    this.hello = hello;
    const names = hello.joints.join("\n");
    if (names === this.names) return;
    this.names = names;
    this.chips = hello.joints.map((joint, k) => {
      const chip = element("button", "joint"), value = element("span", "value", NONE), sign = element("span", "sign");
      const bar = element("span", "meter"), inside = element("span", "full"), mark = element("span", "mark");
      chip.type = "button";
      chip.title = joint;
      bar.append(inside, mark);
      chip.append(element("span", "name", joint), bar, sign, value);
      chip.addEventListener("click", () => choose(k));
      return { chip, value, sign, inside, mark };
    });
    by("joints").replaceChildren(...this.chips.map((each) => each.chip));
    by("joints").classList.toggle("many", hello.joints.length > MANY);
    by("worst").hidden = hello.joints.length < 3;
    this.sortWorst(hello.joints.length > MANY);
  }

  /** Put the joints with the least R² first (undefined ones after them), or every joint in its place. */
  sortWorst(on) {
    by("worst").setAttribute("aria-pressed", String(on));
    this.ordered = -Infinity;
    if (!on) for (const { chip } of this.chips) chip.style.order = "";
    else this.drawOrder();
  }

  drawOrder() {
    const now = performance.now(), scores = this.state?.gate.r2_per_joint;
    if (by("worst").getAttribute("aria-pressed") !== "true" || !scores || now - this.ordered < REORDER) return;
    this.ordered = now;
    const order = this.chips.map((_, k) => k).sort((a, b) => (scores[a] ?? 2) - (scores[b] ?? 2));
    order.forEach((k, place) => { this.chips[k].chip.style.order = String(place); });
  }

  choose(joint) {
    this.chips.forEach(({ chip }, k) => chip.setAttribute("aria-pressed", String(k === joint)));
  }

  /** open, closed, forced (held on the nominal model by a viewer) or unknown. */
  get kind() {
    if (!this.state) return "unknown";
    return this.state.forced ? "forced" : this.state.gate.open ? "open" : "closed";
  }

  get word() {
    return { open: "Gate open", closed: "Gate closed", forced: "Nominal model forced", unknown: "Gate" }[this.kind];
  }

  get model() {
    const identified = this.state.model === "identified";
    if (this.hello.mode === "study" && this.kind === "open" && !identified) return "The identified model may be used; this study's controller keeps the nominal one.";
    if (this.hello.mode === "study" || this.hello.mode === "control") return identified ? "The controller uses the identified model." : "The controller uses the nominal model.";
    return identified ? "A controller may use the identified model." : "A controller should use the nominal model.";
  }

  update(state, t) {
    this.state = state;
    this.t = t;
    const said = `${this.kind} ${state.paused} ${state.ended}`;
    if (said !== this.said) {
      this.said = said;
      const more = [state.paused ? "Paused." : "", state.ended ? "Finished." : ""].join(" ");
      by("spoken").textContent = `${this.word}. ${this.model} ${sentence(state.gate.reason)} ${more}`.trim();
      document.title = `${MARKS[this.kind]} ${this.word} · ${this.hello.title} · Θ̂`;
    }
  }

  // -- what is drawn ----------------------------------------------------------------

  drawVerdict() {
    if (!this.state) return;
    const gate = this.state.gate, kind = this.kind;
    const card = by("gate");
    if (card.dataset.state !== kind) {
      card.dataset.state = kind;
      by("gate-sign").setAttribute("d", SIGNS[kind]);
      by("brief").dataset.state = kind;
      write(by("brief").querySelector(".sign"), MARKS[kind]);
    }
    write(by("gate-word"), this.word);
    write(by("brief").querySelector(".word"), this.word);
    write(by("gate-model"), this.model);
    write(by("gate-reason"), sentence(gate.reason));
    const held = gate.since === null || gate.since === undefined ? null : Math.max(0, this.t - gate.since);
    const gateWord = kind === "forced" ? (gate.open ? "Gate open" : "Gate closed") : gate.open ? "Open" : "Closed";
    write(by("gate-since"), held === null ? "" : `${gateWord} since ${seconds(gate.since)}, for ${seconds(held)}.`);
    this.drawFacts();
  }

  drawFacts() {
    const { gate, cycle, dropped } = this.state, threshold = this.hello.threshold;
    const judged = (r2) => (r2 === null || r2 === undefined ? "" : r2 >= threshold ? "good" : "bad");
    const against = (r2) => ({ share: r2 === null || r2 === undefined ? 0 : along(r2), mark: along(threshold), judged: judged(r2) });
    this.setFact("r2", score(gate.r2), sign(gate.r2, threshold), against(gate.r2));
    this.setFact("fit", score(gate.r2_fit), sign(gate.r2_fit, threshold), against(gate.r2_fit));
    const good = (gate.r2_per_joint ?? []).filter((r2) => r2 !== null && r2 >= threshold).length, all = this.hello.joints.length;
    this.setFact("good", whole(good), `of ${whole(all)}`, { share: good / all, judged: good === all ? "good" : "" });
    const share = gate.window ? Math.min(1, gate.fill / gate.window) : null;
    this.setFact("fill", whole(gate.fill), gate.fill > gate.window ? `≥ ${whole(gate.window)}, full` : `of ${whole(gate.window)}${share === 1 ? ", full" : ""}`, { share });
    const rank = gate.structural_rank && gate.rank !== null ? gate.rank / gate.structural_rank : null;
    this.setFact("rank", whole(gate.rank), `of ${whole(gate.structural_rank)}`, { share: rank });
    this.setFact("condition", number(gate.condition), gate.condition === null || gate.condition === undefined ? "unknown" : "of the fit");
    const period = cycle?.rate ? 1e6 / cycle.rate : null, late = period !== null && known(cycle?.p99) ? cycle.p99 / period : null;
    const room = late === null ? "µs" : `µs of ${whole(period)}`;
    this.setFact("cycle", number(cycle?.p99), room, { share: late === null ? null : Math.min(1, late), judged: late > 1 ? "bad" : "" });
    this.setFact("dropped", whole(dropped?.samples ?? 0), dropped?.samples ? "▲" : "", { judged: dropped?.samples ? "bad" : "" });
    this.drawContact(this.state.contact);
    const held = this.state.payload, half = known(held?.half) ? `± ${number(held.half)} kg, ` : "kg, ";
    this.setFact("payload", held ? number(held.mass) : NONE, held ? `${half}${held.link}` : "none found");
  }

  /** What pushes the robot; until that can be told, how much of the motion has been seen. */
  drawContact(contact) {
    const learned = known(contact?.learning), share = learned ? Math.min(1, contact.learning / contact.learn) : null;
    const seen = learned ? `${whole(contact.learning)} of ${whole(contact.learn)} s learned` : "";
    if (!contact?.kind) return this.setFact("contact", NONE, seen || "from an open gate on", { share });
    const on = contact.joint ? `${contact.joint}, ${number(contact.torque)} ${contact.unit}` : "";
    return this.setFact("contact", contact.kind, on || seen, { share, judged: contact.kind === "none" ? "" : "bad" });
  }

  drawJoints() {
    if (!this.state) return;
    const { r2_per_joint: scores } = this.state.gate, threshold = this.hello.threshold, mark = `${(100 * along(threshold)).toFixed(1)}%`;
    let good = 0, below = 0;
    this.chips.forEach((each, k) => {
      const r2 = scores?.[k] ?? null, kind = r2 === null ? "none" : r2 >= threshold ? "good" : "bad";
      good += kind === "good";
      below += kind === "bad";
      if (each.kind !== kind) {
        each.kind = kind;
        each.chip.dataset.judged = kind;
        each.sign.textContent = { good: "✓", bad: "✕", none: "" }[kind];
      }
      if (each.r2 === r2 && each.at === mark) return;
      each.r2 = r2;
      each.at = mark;
      write(each.value, score(r2));
      each.inside.style.width = r2 === null ? "0" : `${(100 * along(r2)).toFixed(1)}%`;
      each.mark.style.left = mark;
      each.chip.setAttribute("aria-label", `${this.hello.joints[k]}: R² ${r2 === null ? "undefined" : score(r2)}${{ good: ", above the threshold", bad: ", below the threshold", none: "" }[kind]}`);
    });
    this.drawOrder();
    const none = this.chips.length - good - below;
    const parts = [`${good} of ${this.chips.length} above ${threshold}`, ...(below ? [`${below} below`] : []), ...(none ? [`${none} undefined`] : [])];
    write(by("r2-note"), parts.join(" · "));
  }
}

const known = (value) => typeof value === "number" && Number.isFinite(value);

function sign(r2, threshold) {
  return known(r2) ? (r2 >= threshold ? `✓ ≥ ${threshold}` : `✕ < ${threshold}`) : "undefined";
}

/** A reason as a sentence of its own. */
function sentence(text) {
  const clean = String(text ?? "").trim();
  if (!clean) return "";
  return clean[0].toUpperCase() + clean.slice(1) + (/[.!?…]$/.test(clean) ? "" : ".");
}
