/* The robot as a moving stick figure with inertia ellipsoids, drawn by hand on a canvas: light, and without a graphics card. */

import { element, plain } from "./format.js";
import { swatch } from "./plots.js";

const VIEWS = { home: [-0.78, 0.42], front: [-Math.PI / 2, 0.04], side: [0, 0.04], top: [-Math.PI / 2, Math.PI / 2 - 0.001] }; // [rad] azimuth, height of the eye
const FAR = 4; // distance of the eye, in sizes of the robot
const TURN = 0.008; // [rad] per pixel of a drag
const CALM = window.matchMedia("(prefers-reduced-motion: reduce)");

export class Stage {
  constructor(canvas, scheduler) {
    this.canvas = canvas;
    this.scheduler = scheduler;
    this.context = canvas.getContext("2d");
    this.bones = null; // {x, y, z}, gaps are null
    this.bodies = []; // [{kind, colour, points, gaps}], each in its body's frame
    this.poses = [];
    this.low = [Infinity, Infinity, Infinity];
    this.high = [-Infinity, -Infinity, -Infinity];
    this.zoom = 1;
    [this.azimuth, this.height] = VIEWS.home;
    scheduler.add("robot", canvas, () => this.draw(), { period: CALM.matches ? 250 : 45 });
    new ResizeObserver(() => scheduler.touch("robot")).observe(canvas.parentElement);
    this.listen();
  }

  // -- what it is told --------------------------------------------------------------

  set(figure, { keep = false } = {}) {
    if (!figure) return;
    const [bones, ...rest] = figure.data;
    if (!keep || !this.bones) this.bones = bones;
    this.bodies = rest.map((trace) => ({
      kind: trace.type === "mesh3d" ? "surface" : "lines",
      name: plain(trace.name),
      colour: trace.color ?? trace.line?.color ?? "#808790",
      points: [trace.x, trace.y, trace.z],
    }));
    if (!keep) {
      this.low = [Infinity, Infinity, Infinity];
      this.high = [-Infinity, -Infinity, -Infinity];
    }
    this.grow();
    this.legend(figure);
    this.scheduler.touch("robot");
  }

  move(pose, poses) {
    if (pose) this.bones = pose;
    if (poses) this.poses = poses.map((each) => (each.length === 2 ? [...each[0], ...each[1]] : each));
    this.grow();
    this.scheduler.touch("robot");
  }

  /** The room that the robot has ever taken: the view does not jump. */
  grow() {
    for (const [k, axis] of ["x", "y", "z"].entries()) {
      for (const value of this.bones?.[axis] ?? []) {
        if (value === null) continue;
        if (value < this.low[k]) this.low[k] = value;
        if (value > this.high[k]) this.high[k] = value;
      }
    }
  }

  legend(figure) {
    const box = this.canvas.closest(".card").querySelector(".legend"), seen = new Map();
    for (const trace of figure.data) {
      const name = plain(trace.name);
      if (name && !seen.has(name)) seen.set(name, trace);
    }
    box.replaceChildren(...[...seen].map(([name, trace]) => {
      const entry = element("span", "entry");
      entry.append(swatch(trace.type === "mesh3d" ? { mode: "markers", marker: { color: trace.color } } : trace), element("span", "name", LABELS[name] ?? name));
      return entry;
    }));
  }

  // -- looking ------------------------------------------------------------------------

  look(name) {
    [this.azimuth, this.height] = VIEWS[name];
    this.zoom = 1;
    this.scheduler.touch("robot");
  }

  turn(across, up) {
    this.azimuth -= across * TURN;
    this.height = Math.min(Math.PI / 2 - 0.001, Math.max(-Math.PI / 2 + 0.001, this.height + up * TURN));
    this.scheduler.touch("robot");
  }

  nearer(factor) {
    this.zoom = Math.min(8, Math.max(0.3, this.zoom * factor));
    this.scheduler.touch("robot");
  }

  listen() {
    const canvas = this.canvas, fingers = new Map();
    let apart = 0;
    canvas.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      canvas.setPointerCapture(event.pointerId);
      apart = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      if (fingers.size === 1) {
        this.turn(event.clientX - before[0], event.clientY - before[1]);
      } else if (fingers.size === 2) {
        const [a, b] = [...fingers.values()], now = Math.hypot(a[0] - b[0], a[1] - b[1]);
        if (apart > 0) this.nearer(now / apart);
        apart = now;
      }
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => fingers.delete(event.pointerId));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return; // the wheel scrolls the page until the robot is chosen
      event.preventDefault();
      this.nearer(Math.exp(-event.deltaY * 0.0015));
    }, { passive: false });
    canvas.addEventListener("dblclick", () => this.look("home"));
    canvas.addEventListener("keydown", (event) => {
      const turns = { ArrowLeft: [20, 0], ArrowRight: [-20, 0], ArrowUp: [0, 20], ArrowDown: [0, -20] }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (turns) this.turn(...turns);
      else if (event.key === "+" || event.key === "=") this.nearer(1.15);
      else if (event.key === "-") this.nearer(1 / 1.15);
      else return;
      event.preventDefault();
    });
    for (const button of canvas.closest(".card").querySelectorAll("[data-view]")) {
      button.addEventListener("click", () => this.look(button.dataset.view));
    }
  }

  // -- drawing ------------------------------------------------------------------------

  /** A function from world to [screen x, screen y, depth], written into an array. */
  eye(width, height) {
    const middle = this.low.map((low, k) => (low + this.high[k]) / 2);
    const radius = Math.max(0.5 * Math.hypot(...this.low.map((low, k) => this.high[k] - low)), 1e-3) * 1.12;
    const ca = Math.cos(this.azimuth), sa = Math.sin(this.azimuth), ch = Math.cos(this.height), sh = Math.sin(this.height);
    const right = [-sa, ca, 0], toward = [ca * ch, sa * ch, sh], up = [-ca * sh, -sa * sh, ch];
    const far = FAR * radius;
    let scale = 1;
    const project = (x, y, z, out) => {
      const a = x - middle[0], b = y - middle[1], c = z - middle[2];
      const near = toward[0] * a + toward[1] * b + toward[2] * c;
      const factor = (scale * far) / Math.max(far - near, 0.05 * far);
      out[0] = width / 2 + factor * (right[0] * a + right[1] * b);
      out[1] = height / 2 - factor * (up[0] * a + up[1] * b + up[2] * c);
      out[2] = near;
      return out;
    };
    let fill = 1e-9; // of half the canvas that the robot's room takes, at a scale of one
    for (let k = 0; k < 8; k += 1) {
      const corner = project(...[0, 1, 2].map((axis) => (k & (1 << axis) ? this.high[axis] : this.low[axis])), [0, 0, 0]);
      fill = Math.max(fill, Math.abs(corner[0] - width / 2) / width, Math.abs(corner[1] - height / 2) / height);
    }
    scale = (this.zoom * 0.41) / fill;
    return { project, middle, radius };
  }

  draw() {
    const { canvas, context } = this, box = canvas.parentElement, ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = box.clientWidth, height = box.clientHeight;
    if (width < 20 || height < 20) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    if (!this.bones || !(this.high[0] >= this.low[0])) return;
    const style = getComputedStyle(document.documentElement), css = (name) => style.getPropertyValue(name).trim();
    const letter = parseFloat(style.fontSize);
    const eye = this.eye(width, height);
    context.lineCap = "round";
    context.lineJoin = "round";
    const cell = this.floor(eye, css("--line"));
    const items = [...this.outlines(eye), ...this.sticks(eye, css("--quiet"), letter)].sort((a, b) => a.depth - b.depth);
    for (const item of items) item.paint(context);
    this.axes(width, height, letter, css("--quiet"));
    context.fillStyle = css("--quiet");
    context.font = `${0.78 * letter}px system-ui, sans-serif`;
    context.textAlign = "right";
    context.fillText(`grid ${cell >= 1 ? `${cell} m` : `${Math.round(cell * 1000) / 10} cm`}`, width - 0.5 * letter, height - 0.6 * letter);
  }

  /** A grid under the robot; returns the size of a cell [m]. */
  floor(eye, colour) {
    const { context } = this, { radius, middle, project } = eye;
    const raw = radius / 2.5, power = 10 ** Math.floor(Math.log10(raw)), cell = power * (raw / power >= 5 ? 5 : raw / power >= 2 ? 2 : 1);
    const z = this.low[2], reach = Math.ceil(radius / cell), x0 = Math.round(middle[0] / cell), y0 = Math.round(middle[1] / cell);
    const a = [0, 0, 0], b = [0, 0, 0];
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.beginPath();
    for (let k = -reach; k <= reach; k += 1) {
      for (const [p, q] of [[[k, -reach], [k, reach]], [[-reach, k], [reach, k]]]) {
        project((x0 + p[0]) * cell, (y0 + p[1]) * cell, z, a);
        project((x0 + q[0]) * cell, (y0 + q[1]) * cell, z, b);
        context.moveTo(a[0], a[1]);
        context.lineTo(b[0], b[1]);
      }
    }
    context.stroke();
    return cell;
  }

  /** Bones and joints as things to paint. */
  sticks(eye, colour, letter) {
    const { x, y, z } = this.bones, items = [];
    const a = [0, 0, 0], b = [0, 0, 0];
    const width = Math.max(2, 0.2 * letter), dot = Math.max(2.2, 0.24 * letter);
    for (let k = 0; k + 1 < x.length; k += 1) {
      if (x[k] === null || x[k + 1] === null) continue;
      const p = eye.project(x[k], y[k], z[k], a).slice(), q = eye.project(x[k + 1], y[k + 1], z[k + 1], b).slice();
      items.push({ depth: (p[2] + q[2]) / 2, paint: (context) => {
        context.strokeStyle = colour;
        context.lineWidth = width;
        context.beginPath();
        context.moveTo(p[0], p[1]);
        context.lineTo(q[0], q[1]);
        context.stroke();
        context.fillStyle = colour;
        for (const end of [p, q]) {
          context.beginPath();
          context.arc(end[0], end[1], dot, 0, 7);
          context.fill();
        }
      } });
    }
    return items;
  }

  /** Ellipsoids: their outlines, filled; or their sections, as lines. */
  outlines(eye) {
    const items = [], out = [0, 0, 0];
    this.bodies.forEach((body, k) => {
      const pose = this.poses[k];
      if (!pose) return;
      const [x, y, z] = body.points, flat = [];
      let depth = 0, count = 0;
      for (let i = 0; i < x.length; i += 1) {
        if (x[i] === null) { flat.push(null); continue; }
        const px = pose[0] * x[i] + pose[1] * y[i] + pose[2] * z[i] + pose[9];
        const py = pose[3] * x[i] + pose[4] * y[i] + pose[5] * z[i] + pose[10];
        const pz = pose[6] * x[i] + pose[7] * y[i] + pose[8] * z[i] + pose[11];
        eye.project(px, py, pz, out);
        flat.push([out[0], out[1]]);
        depth += out[2];
        count += 1;
      }
      if (!count) return;
      const surface = body.kind === "surface", line = surface ? hull(flat.filter(Boolean)) : flat;
      items.push({ depth: depth / count + (surface ? 0 : 1e-6), paint: (context) => paint(context, line, body.colour, surface) });
    });
    return items;
  }

  /** Which way x, y and z point. */
  axes(width, height, letter, colour) {
    const { context } = this, length = 1.7 * letter, x0 = 2.4 * letter, y0 = height - 2.2 * letter;
    const ca = Math.cos(this.azimuth), sa = Math.sin(this.azimuth), ch = Math.cos(this.height), sh = Math.sin(this.height);
    const ends = { x: [-sa, -ca * sh], y: [ca, -sa * sh], z: [0, ch] };
    context.font = `${0.78 * letter}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = 1.5;
    for (const [name, [right, up]] of Object.entries(ends)) {
      context.beginPath();
      context.moveTo(x0, y0);
      context.lineTo(x0 + length * right, y0 - length * up);
      context.stroke();
      const away = Math.hypot(right, up);
      if (away > 0.15) context.fillText(name, x0 + (length + 0.55 * letter / away) * right, y0 - (length + 0.55 * letter / away) * up);
    }
    context.textBaseline = "alphabetic";
  }
}

const LABELS = { robot: "links", identified: "identified inertia", nominal: "nominal inertia", impossible: "inconsistent inertia" };

function paint(context, line, colour, surface) {
  context.beginPath();
  if (surface) {
    round(context, line);
  } else {
    let down = false;
    for (const point of line) {
      if (point && down) context.lineTo(point[0], point[1]);
      else if (point) context.moveTo(point[0], point[1]);
      down = Boolean(point);
    }
  }
  if (surface) {
    context.globalAlpha = 0.3;
    context.fillStyle = colour;
    context.fill();
  }
  context.globalAlpha = surface ? 0.9 : 0.8;
  context.strokeStyle = colour;
  context.lineWidth = surface ? 1.4 : 1;
  context.stroke();
  context.globalAlpha = 1;
}

/** A smooth curve along a convex outline: through the middles of its sides, bent by its corners. */
function round(context, corners) {
  const middle = (a, b) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2], last = corners.length - 1;
  context.moveTo(...middle(corners[last], corners[0]));
  corners.forEach((corner, k) => context.quadraticCurveTo(corner[0], corner[1], ...middle(corner, corners[k === last ? 0 : k + 1])));
  context.closePath();
}

/** Corners of the convex hull of points (monotone chain). */
export function hull(points) {
  const sorted = points.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const left = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
  const half = (list) => {
    const out = [];
    for (const point of list) {
      while (out.length > 1 && left(out[out.length - 2], out[out.length - 1], point) <= 0) out.pop();
      out.push(point);
    }
    out.pop();
    return out;
  };
  return sorted.length < 3 ? sorted : [...half(sorted), ...half(sorted.reverse())];
}
