/* The page of a designed motion: the robot moves, with its joints' positions over time below. Built into one file by motion_preview.py. */

const COLOURS = ["#2f7ed8", "#d8742f", "#0b8f6a", "#a04fc4", "#c23b5a", "#7a8a14", "#3aa0b8", "#8a5a2b"];
const DATA = JSON.parse(document.getElementById("motion").textContent);
const LABELS_OF_PARTS = { links: "joints", base: "base", bodies: "collision shapes" };

/** A patch of colour of a legend's entry. */
function swatch(trace) {
  const patch = element("span", "swatch");
  patch.style.background = trace.marker?.color ?? trace.line?.color ?? "currentColor";
  return patch;
}

/** Frame at a time, between two that were sent: [bones, poses]. */
function frameAt(t) {
  const { frames, rate } = DATA, at = Math.min(Math.max(t * rate, 0), frames.length - 1);
  const k = Math.min(Math.floor(at), frames.length - 2), part = at - k;
  const [a, b] = [frames[k], frames[k + 1]];
  const mixed = a.map((value, i) => (value === null ? null : value + part * (b[i] - value)));
  const ends = 3 * DATA.ends, bones = { x: [], y: [], z: [] };
  for (let i = 0; i < ends; i += 3) {
    bones.x.push(mixed[i]);
    bones.y.push(mixed[i + 1]);
    bones.z.push(mixed[i + 2]);
    if (i % 6 === 3) for (const axis of ["x", "y", "z"]) bones[axis].push(null);
  }
  const poses = DATA.pieces.map(({ body }) => (body < 0 ? [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0] : mixed.slice(ends + 12 * body, ends + 12 * (body + 1))));
  return [bones, poses];
}

/** Joints' positions over time, as a part of their ranges. */
class Lines {
  constructor(canvas) {
    this.canvas = canvas;
    this.time = 0;
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
  }

  draw() {
    const { canvas } = this, box = canvas.parentElement, ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = box.clientWidth, height = box.clientHeight, context = canvas.getContext("2d");
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.documentElement), css = (name) => style.getPropertyValue(name).trim();
    const letter = parseFloat(style.fontSize) * 0.78, left = 4 * letter, right = width - 0.6 * letter, top = 0.8 * letter, bottom = height - 1.9 * letter;
    const x = (t) => left + ((right - left) * t) / DATA.duration, y = (value) => (top + bottom) / 2 - (value * (bottom - top)) / 2;
    context.font = `${letter}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    for (const [value, text] of [[1, "upper"], [0, "middle"], [-1, "lower"]]) {
      context.strokeStyle = css("--grid");
      context.beginPath();
      context.moveTo(left, y(value));
      context.lineTo(right, y(value));
      context.stroke();
      context.fillStyle = css("--quiet");
      context.textAlign = "right";
      context.fillText(text, left - 0.4 * letter, y(value));
    }
    context.textAlign = "center";
    const step = DATA.duration > 12 ? 5 : DATA.duration > 5 ? 2 : 1;
    for (let t = 0; t <= DATA.duration; t += step) context.fillText(`${t} s`, Math.min(x(t), right - letter), bottom + letter);
    DATA.joints.forEach(({ share }, j) => {
      context.strokeStyle = COLOURS[j % COLOURS.length];
      context.lineWidth = 1.6;
      context.beginPath();
      share.forEach((value, k) => context.lineTo(x((k * DATA.duration) / (share.length - 1)), y(value)));
      context.stroke();
    });
    context.strokeStyle = css("--ink");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x(this.time), top);
    context.lineTo(x(this.time), bottom);
    context.stroke();
  }
}

class Player {
  constructor() {
    const find = (id) => document.getElementById(id);
    this.button = find("play");
    this.slider = find("time");
    this.speed = find("speed");
    this.clock = find("clock");
    this.scheduler = new Scheduler(() => {});
    this.stage = new Stage(find("stage"), this.scheduler);
    this.lines = new Lines(find("lines"));
    this.time = 0;
    this.last = null;
    this.playing = !CALM.matches;
    this.stage.set({ data: [{ name: "links", line: { color: "#808790" } }, ...DATA.pieces.map((piece) => ({
      type: "mesh3d", name: piece.body < 0 ? "base" : "bodies", color: piece.body < 0 ? "#808790" : "#2f7ed8", x: piece.x, y: piece.y, z: piece.z,
    }))] });
    for (let k = 0; k <= 60; k += 1) this.stage.move(...frameAt((k * DATA.duration) / 60)); // the view holds all of it
    if (DATA.floor !== null) this.stage.low[2] = DATA.floor;
    this.stage.zoom = 1.2;
    this.button.addEventListener("click", () => this.toggle());
    this.slider.addEventListener("input", () => { this.playing = false; this.show(Number(this.slider.value)); });
    document.addEventListener("keydown", (event) => {
      if (event.key !== " " || event.target.closest("button, select, input")) return;
      event.preventDefault();
      this.toggle();
    });
    this.show(0);
    this.scheduler.start();
    requestAnimationFrame((now) => this.step(now));
  }

  toggle() {
    this.playing = !this.playing;
    if (this.playing && this.time >= DATA.duration) this.time = 0;
    this.show(this.time);
  }

  step(now) {
    requestAnimationFrame((next) => this.step(next));
    const passed = this.last === null ? 0 : Math.min((now - this.last) / 1000, 0.1);
    this.last = now;
    if (this.playing) this.show((this.time + passed * Number(this.speed.value)) % DATA.duration);
  }

  show(t) {
    this.time = t;
    this.slider.value = t;
    write(this.clock, `${t.toFixed(2)} s of ${DATA.duration.toFixed(1)} s`);
    write(this.button, this.playing ? "Pause" : "Play");
    this.stage.move(...frameAt(t));
    this.lines.time = t;
    this.lines.draw();
    document.documentElement.dataset.time = t.toFixed(3);
  }
}

Object.assign(LABELS, LABELS_OF_PARTS);
document.getElementById("joints").replaceChildren(...DATA.joints.map(({ name }, j) => {
  const entry = element("span", "entry");
  entry.append(swatch({ line: { color: COLOURS[j % COLOURS.length] } }), element("span", "name", name));
  return entry;
}));
new Player();
