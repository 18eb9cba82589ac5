/* Buttons, keys, downloads, and what the page has to tell its reader. */

import { element, write } from "./format.js";

const STALE = 3000; // [ms] that a command may take to show
const SPANS = [["auto span", undefined], ["10 s", 10], ["30 s", 30], ["60 s", 60], ["5 min", 300], ["whole run", null]]; // undefined: every figure its own;
const by = (id) => document.getElementById(id);

// -- notices ------------------------------------------------------------------------------

const notices = new Map();

/** Show a notice, replace it, or (empty text) take it away; after `stay` ms it goes by itself. */
export function notice(name, text, { level = "warning", stay = 0, action = null } = {}) {
  let each = notices.get(name);
  if (!text) {
    if (each) each.node.remove();
    notices.delete(name);
    return;
  }
  if (!each || each.level !== level) {
    if (each) each.node.remove();
    const node = element("div", `note ${level}`), words = element("span", "words"), close = element("button", "close", "×");
    node.dataset.notice = name;
    close.type = "button";
    close.setAttribute("aria-label", "Dismiss");
    close.addEventListener("click", () => notice(name, ""));
    node.append(words);
    if (action) {
      const button = element("button", "", action.title);
      button.type = "button";
      button.addEventListener("click", action.run);
      node.append(button);
    }
    if (stay) node.append(close);
    by("notices").append(node);
    each = { node, words, level };
    notices.set(name, each);
  }
  write(each.words, text);
  clearTimeout(each.timer);
  if (stay) each.timer = setTimeout(() => notice(name, ""), stay);
}

// -- commands -------------------------------------------------------------------------------

export class Controls {
  /** page: {send(message), choose(joint), joint, joints, span(seconds), home()} */
  constructor(page) {
    this.page = page;
    this.state = null;
    this.live = false;
    this.forcible = true; // whether there is a controller that can be held on the nominal model
    this.driveFile = false; // whether drive.json goes beside the robot's file
    by("pause").addEventListener("click", () => this.command(this.state?.paused ? "resume" : "pause"));
    by("nominal").addEventListener("click", () => this.command(this.state?.forced ? "release" : "force_nominal"));
    by("reset").addEventListener("click", () => this.ask());
    by("keys").addEventListener("click", () => by("help").showModal());
    by("ask").querySelector("[value=yes]").addEventListener("click", () => this.command("reset")); // not on close, which comes late: two could then see one yes
    for (const link of document.querySelectorAll(".tools a.button")) link.addEventListener("click", (event) => this.download(event, link));
    const select = by("span");
    for (const [title, value] of SPANS) select.append(new Option(typeof value === "number" ? `last ${title}` : title, String(value)));
    select.addEventListener("change", () => this.page.span(SPANS[select.selectedIndex][1]));
    by("joint").addEventListener("change", () => this.page.choose(Number(by("joint").value)));
    by("joint-before").addEventListener("click", () => this.step(-1));
    by("joint-after").addEventListener("click", () => this.step(1));
    this.keys();
  }

  showJoints(joints, units) {
    const names = joints.join("\n");
    if (names === this.names) return;
    this.names = names;
    by("joint").replaceChildren(...joints.map((joint, k) => new Option(units?.[k] ? `${joint} [${units[k]}]` : joint, String(k))));
  }

  ask() {
    if (by("ask").open || by("reset").disabled) return;
    by("ask").showModal();
  }

  step(by_) {
    const count = this.page.joints;
    if (count) this.page.choose((this.page.joint + by_ + count) % count);
  }

  command(name) {
    if (!this.page.send({ type: "command", name })) {
      notice("command", "There is no connection: the command was not sent.", { level: "bad", stay: 6000 });
      return;
    }
    this.waiting = { name, since: performance.now() };
    this.show();
  }

  /** A command was refused. */
  refused() {
    this.waiting = null;
    this.show();
  }

  /** Buttons say what they do now, and wait until the state shows it. */
  show(state = this.state, live = this.live) {
    this.state = state;
    this.live = live;
    if (this.waiting && (this.done(this.waiting.name) || performance.now() - this.waiting.since > STALE)) this.waiting = null;
    const idle = live && state !== null && !this.waiting, over = Boolean(state?.ended);
    by("nominal").hidden = !this.forcible;
    by("drive").hidden = !this.driveFile;
    by("pause").disabled = by("reset").disabled = by("nominal").disabled = !idle || over;
    document.body.classList.toggle("paused", Boolean(state?.paused));
    label(by("pause"), state?.paused ? "▶" : "❚❚", state?.paused ? "Resume" : "Pause");
    label(by("nominal"), state?.forced ? "▷" : "■", state?.forced ? "Release gate" : "Force nominal");
    by("nominal").setAttribute("aria-pressed", String(Boolean(state?.forced)));
    for (const link of document.querySelectorAll(".tools a.button")) link.setAttribute("aria-disabled", String(!live));
  }

  done(name) {
    const { paused, forced } = this.state ?? {};
    return { pause: paused, resume: !paused, force_nominal: forced, release: !forced, reset: performance.now() - this.waiting.since > 300 }[name];
  }

  // -- downloads ------------------------------------------------------------------------------

  /** Fetched here, so that a refusal is a sentence on the page and not a broken file. */
  async download(event, link) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const what = link.firstChild.textContent;
    if (link.getAttribute("aria-disabled") === "true" || link.dataset.busy) return;
    link.dataset.busy = "yes";
    try {
      const answer = await fetch(link.getAttribute("href"), { cache: "no-store" });
      if (!answer.ok) throw new Error(sentenceOf(await answer.text()) || `the server answered ${answer.status}`);
      const name = /filename="?([^";]+)"?/.exec(answer.headers.get("content-disposition") ?? "")?.[1] ?? link.dataset.name;
      const address = URL.createObjectURL(await answer.blob()), anchor = element("a");
      anchor.href = address;
      anchor.download = name;
      anchor.click();
      setTimeout(() => URL.revokeObjectURL(address), 10000);
      const verdict = decodeURIComponent(answer.headers.get("x-thetahat-verdict") ?? "");
      if (verdict) notice("verdict", verdict, { level: verdict.startsWith("Good") ? "info" : "warning", stay: 15000 });
      if (link.dataset.name === "robot.xml" && !by("drive").hidden) {
        notice("drive", `${name} cannot hold all drive terms: download drive.json, too, and keep it beside that file.`, { level: "warning", stay: 15000 });
      }
    } catch (error) {
      const why = error instanceof TypeError ? "the connection ended before there was an answer; is the server still there?" : error.message; // fetch says no more
      notice("download", `${what} could not be downloaded: ${why}`, { level: "bad", stay: 10000 });
    } finally {
      delete link.dataset.busy;
    }
  }

  // -- keys -------------------------------------------------------------------------------------

  keys() {
    const on = by("keys-on");
    try {
      on.checked = localStorage.getItem("thetahat-keys") !== "off";
      on.addEventListener("change", () => localStorage.setItem("thetahat-keys", on.checked ? "on" : "off"));
    } catch { /* a browser that keeps nothing: keys are on */ }
    const actions = {
      p: () => by("pause").click(), n: () => !by("nominal").hidden && by("nominal").click(), r: () => this.ask(),
      j: () => this.step(1), k: () => this.step(-1), 0: () => this.page.home(),
      e: () => document.querySelector(".tools a[data-key=e]").click(),
      w: () => { by("span").selectedIndex = (by("span").selectedIndex + 1) % SPANS.length; by("span").dispatchEvent(new Event("change")); },
      "?": () => by("help").showModal(),
    };
    document.addEventListener("keydown", (event) => {
      if (!on.checked || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
      if (document.querySelector("dialog[open]") || event.target.closest("input:not([type=checkbox]), select, textarea")) return;
      const action = actions[event.key.toLowerCase()];
      if (!action) return;
      event.preventDefault();
      action();
    });
  }
}

function label(button, sign, word) {
  write(button.querySelector(".sign"), sign);
  write(button.querySelector(".word"), word);
}

/** The sentence in an answer: JSON with a message, or short plain text. */
function sentenceOf(text) {
  try {
    const found = JSON.parse(text);
    return String(found.message ?? found.reason ?? found.error ?? "");
  } catch {
    return text.length < 400 && !text.includes("<") ? text.trim() : "";
  }
}
