/* The live page: messages in, drawings out. */

import { Controls, notice } from "./controls.js";
import { Events } from "./events.js";
import { Gate } from "./gate.js";
import { Connection } from "./connection.js";
import { Scheduler } from "./scheduler.js";
import { Parameters } from "./parameters.js";
import { Plot } from "./plots.js";
import { Stage } from "./robot.js";
import { clock, number, seconds, whole, write } from "./format.js";

const by = (id) => document.getElementById(id);
const MODES = { study: "study", control: "control of a robot", replay: "replay of a log", listen: "joint states received" };

const page = { hello: null, state: null, t: 0, seq: null, joint: 0, span: undefined }; // span: undefined where every figure shows its own
const scheduler = new Scheduler(() => { if (page.seq !== null) link.send({ type: "ack", seq: page.seq }); });
const gate = new Gate();
const events = new Events(by("events-list"), by("events-note"));
const parameters = new Parameters(by("parameters-box"), scheduler);
const stage = new Stage(by("stage"), scheduler);
const plots = new Map([...document.querySelectorAll(".plot")].map((node) => [node.dataset.panel, new Plot(node.dataset.panel, node, scheduler)]));

const controls = new Controls({
  send: (message) => link.send(message),
  choose,
  span: setSpan,
  home: () => stage.look("home"),
  get joint() { return page.joint; },
  get joints() { return page.hello?.joints.length ?? 0; },
});

// -- messages ---------------------------------------------------------------------------------

const receive = {
  hello(message) {
    const before = page.hello;
    page.hello = message;
    if (page.joint >= message.joints.length) page.joint = 0;
    if (before && before.started !== message.started) page.anew = true;
    notice("ended", "");
    gate.set(message, choose);
    controls.showJoints(message.joints, message.units);
    showNames(message);
    controls.forcible = message.forcible ?? message.mode === "study";
    controls.driveFile = Boolean(message.drive_file);
    setPanels(message.panels);
    stage.set(message.scene);
    parameters.set(message.parameters);
    events.set(message.events);
    if (message.t !== undefined) page.t = message.t;
    take(message.state);
    showJoint();
    if (page.joint !== 0) link.send({ type: "subscribe", joint: page.joint });
    if (page.back !== undefined) {
      const what = page.anew ? "The server was restarted: this is a new run." : "It is still the same run.";
      notice("again", `Reconnected at ${clock(new Date())} after ${seconds(page.back, 0)} without data. ${what}`, { level: "good", stay: 8000 });
      page.back = undefined;
      page.anew = false;
    }
    document.documentElement.dataset.hellos = Number(document.documentElement.dataset.hellos ?? 0) + 1;
  },

  frame(message) {
    if (!page.hello) return;
    page.seq = message.seq;
    page.t = message.t;
    for (const [id, points] of Object.entries(message.extend ?? {})) {
      const plot = plotOf(id);
      if (plot?.figure) plot.extend(points);
    }
    if (message.pose || message.bodies) stage.move(message.pose, message.bodies);
    take(message.state);
  },

  figure(message) {
    if (message.id === "scene") {
      stage.set(message.figure, { keep: true });
      return;
    }
    const plot = plotOf(message.id);
    if (plot) plot.set(message.figure);
  },

  parameters(message) { parameters.set(message); },
  event(message) { events.add(message); },
  error(message) {
    controls.refused();
    notice("error", `Server: ${message.message ?? message.reason}`, { level: "bad", stay: 10000 });
  },

  bye(message) {
    const finished = message.reason === "finished", said = String(message.message ?? "").replace(/\.?$/, ".");
    const text = finished ? `Finished at ${clock(new Date())}: ${said}` : `The server was stopped at ${clock(new Date())}; the page reconnects when it is back.`;
    notice("ended", text, { level: finished ? "good" : "warning" });
  },
};

/** The figure that an id belongs to; none if it is of a joint that is not chosen. */
function plotOf(id) {
  const [name, joint] = id.split(":");
  return joint === undefined || Number(joint) === page.joint ? plots.get(name) : undefined;
}

function take(state) {
  if (!state) return;
  const turned = state.paused !== page.state?.paused || state.ended !== page.state?.ended;
  page.state = state;
  if (turned) showLink();
  gate.update(state, page.t);
  for (const plot of plots.values()) {
    plot.stream.t = page.t;
    plot.stream.identified = state.model === "identified";
  }
  controls.show(state, link.state === "live");
  scheduler.touch("verdict", "joints", "bar");
}

function setPanels(panels) {
  const given = new Map(panels.map((panel) => [panel.id.split(":")[0], panel]));
  for (const [id, plot] of plots) {
    const panel = given.get(id), card = plot.card;
    card.hidden = !panel;
    if (!panel) continue;
    if (id !== "torque" && panel.title) write(card.querySelector("h2"), panel.title);
    plot.usual = panel.span ?? null;
    if (!plot.figure || plotOf(panel.id)) plot.set(panel.figure); // else of another joint: the chosen one's follows
  }
  showSpan();
  by("content").classList.toggle("without-error", !given.has("error"));
}

// -- choices --------------------------------------------------------------------------------------

function choose(joint) {
  if (joint === page.joint || !(joint >= 0 && joint < page.hello.joints.length)) return;
  page.joint = joint;
  link.send({ type: "subscribe", joint });
  showJoint();
}

function showJoint() {
  by("joint").value = String(page.joint);
  gate.choose(page.joint);
  for (const plot of plots.values()) {
    plot.stream.chosen = page.hello.joints.length > 1 ? page.hello.joints[page.joint] : null;
    scheduler.touch(plot.id);
  }
  const unit = page.hello.units?.[page.joint];
  write(by("torque-title"), unit === "N" ? "Force" : "Torque");
}

function setSpan(value) {
  page.span = value;
  plots.forEach((plot) => plot.follow());
  showSpan();
}

function showSpan() {
  for (const plot of plots.values()) plot.stream.span = page.span === undefined ? plot.usual : page.span;
}

// -- the bar ------------------------------------------------------------------------------------

function showNames(hello) {
  write(by("title"), hello.title);
  const speed = hello.speed && hello.speed !== 1 ? `, ${Number(hello.speed.toPrecision(3))}× real time` : "";
  const robot = hello.robot && hello.robot !== hello.title ? `${hello.robot}, ` : "";
  write(by("subtitle"), `${MODES[hello.mode] ?? hello.mode} · ${robot}${hello.joints.length} joint${hello.joints.length === 1 ? "" : "s"}, ${whole(hello.rate)} Hz${speed}`);
}

function drawBar() {
  write(by("time"), `t = ${seconds(page.t, 1)}`);
  const cycle = page.state?.cycle;
  const room = cycle ? `p50 ${number(cycle.p50)} µs · p99 ${number(cycle.p99)} µs · ${whole(cycle.rate)} Hz` : "";
  write(by("cycle-note"), room);
  const viewers = page.state?.viewers, dropped = page.state?.dropped?.frames;
  const parts = [`thetahat ${page.hello?.version ?? ""}`, page.hello?.started ? `running since ${clock(new Date(page.hello.started))}` : ""];
  if (viewers) parts.push(`${whole(viewers)} viewer${viewers === 1 ? "" : "s"}`);
  if (dropped) parts.push(`${whole(dropped)} frames dropped for slow viewers`);
  write(by("foot"), parts.filter(Boolean).join(" · "));
}

function showLink() {
  const silent = link.silence() !== null;
  const kind = link.state !== "live" ? link.state : silent ? "lost" : page.state?.ended ? "ended" : page.state?.paused ? "paused" : "live";
  const [sign, word] = { live: ["●", "live"], paused: ["❚❚", "paused"], ended: ["■", "finished"], lost: ["✕", "no connection"], connecting: ["◌", "connecting"] }[kind];
  by("link").dataset.state = kind;
  write(by("link").querySelector(".sign"), sign);
  write(by("link").querySelector(".word"), kind === "lost" && silent ? "no data" : word);
  document.body.classList.toggle("stale", kind === "lost");
  const action = { title: "Try now", run: () => link.connect() };
  notice("link", link.trouble(), { level: "bad", action: link.state === "live" ? null : action });
  controls.show(page.state, link.state === "live");
}

// -- start ------------------------------------------------------------------------------------------

const link = new Connection(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/live`, {
  message(data) {
    if (!Object.hasOwn(receive, data?.type)) return; // a newer server may say more
    try {
      receive[data.type](data);
    } catch (error) {
      console.error(`a message of type ${data.type} could not be shown: ${error.stack || error}`);
    }
  },
  opened(again, gone) {
    if (again) {
      page.back = gone;
      events.add({ t: page.t, kind: "link", message: `This page was disconnected for ${seconds(gone, 0)}.` });
    }
  },
  changed: () => showLink(),
});

scheduler.add("verdict", by("gate"), () => gate.drawVerdict(), { period: 100 });
scheduler.add("joints", by("joints"), () => gate.drawJoints(), { period: 200 });
scheduler.add("bar", document.querySelector(".bar"), drawBar, { period: 100 });
function setScale(on) {
  plots.get("r2").scale(on);
  by("spread").setAttribute("aria-pressed", String(on));
}

setScale(true);
by("spread").addEventListener("click", () => setScale(by("spread").getAttribute("aria-pressed") !== "true"));
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  plots.forEach((plot) => plot.restyle());
  scheduler.touchAll();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) scheduler.touchAll(); });
if (location.search) history.replaceState(null, "", location.pathname); // the token is in a cookie now; it need not stand in the address
setInterval(showLink, 500);
scheduler.start();
link.connect();
