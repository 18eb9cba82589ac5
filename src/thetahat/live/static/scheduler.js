/* Draws what is in view, changed and due, and leaves the page time to respond. */

const SHARE = 0.45; // of the time that figures may take: the robot's loop may run on the same machine
const LONGEST = 400; // [ms] of rest after a figure, however long it took
const ACKS = 100; // [ms] between two answers to the server

export class Scheduler {
  constructor(drawn) {
    this.tasks = new Map();
    this.drawn = drawn; // called after a redraw
    this.next = 0; // [ms] when a figure may be drawn again
    this.told = 0;
    this.redraws = 0;
    this.watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const task = this.tasks.get(entry.target.dataset.task);
        if (!task) continue;
        task.seen = entry.isIntersecting;
        task.met = task.met || entry.isIntersecting; // who scrolls fast finds it drawn when he comes back
      }
    }, { rootMargin: "80px 0px" });
  }

  /** draw() of what a node shows, at most every `period` ms; heavy ones take turns. */
  add(name, node, draw, { period = 0, heavy = false } = {}) {
    node.dataset.task = name;
    this.tasks.set(name, { name, node, draw, period, heavy, dirty: true, seen: false, met: false, last: -Infinity, count: 0 });
    this.watcher.observe(node);
  }

  /** What a task shows has changed. */
  touch(...names) {
    for (const name of names) {
      const task = this.tasks.get(name);
      if (task) task.dirty = true;
    }
  }

  touchAll() { for (const task of this.tasks.values()) task.dirty = true; }

  start() {
    const step = (now) => {
      requestAnimationFrame(step);
      this.turn(now);
    };
    requestAnimationFrame(step);
  }

  turn(now) {
    let any = false;
    const due = [...this.tasks.values()].filter((task) => task.dirty && (task.seen || (task.met && !task.node.dataset.drawn && task.heavy)) && now - task.last >= task.period);
    for (const task of due) {
      if (!task.heavy) any = this.run(task, now) || any;
    }
    if (now >= this.next) {
      const heavy = due.filter((task) => task.heavy).sort((a, b) => a.last - b.last)[0];
      if (heavy) {
        const begin = performance.now();
        any = this.run(heavy, now) || any;
        const cost = performance.now() - begin;
        this.next = begin + cost + Math.min(cost * (1 / SHARE - 1), LONGEST);
      }
    }
    if (!any) return;
    this.redraws += 1;
    document.documentElement.dataset.redraws = this.redraws;
    if (now - this.told >= ACKS) {
      this.told = now;
      this.drawn();
    }
  }

  run(task, now) {
    task.dirty = false;
    task.last = now;
    task.count += 1;
    task.node.dataset.redraws = task.count;
    try {
      task.draw(now);
    } catch (error) {
      console.error(`${task.name} could not be drawn: ${error.stack || error}`); // the others go on
    }
    return true;
  }
}
