/* The connection: it comes back by itself, and says since when it is gone. */

import { clock, seconds } from "./format.js";

const FIRST = 500, LONGEST = 5000; // [ms] between two attempts
const SILENT = 4000; // [ms] without a word from a server that should send
const LATEST = 4_000_000; // [bytes] that may wait to be sent

export class Connection {
  /** on: {message(data), opened(again, secondsGone), changed(link)} */
  constructor(address, on) {
    this.address = address;
    this.on = on;
    this.state = "connecting"; // connecting, live, lost
    this.since = new Date(); // when the state began
    this.heard = 0; // [ms] last word, of performance.now()
    this.heardAt = null; // the same as a time of day
    this.attempt = 0;
    this.ever = false;
    this.refused = false; // the server is there, but does not take this page's token
    this.timer = null;
    this.socket = null;
  }

  connect() {
    clearTimeout(this.timer);
    this.timer = null;
    this.attempt += 1;
    if (this.socket !== null) this.drop();
    const socket = new WebSocket(this.address);
    this.socket = socket;
    socket.addEventListener("open", () => this.socket === socket && this.opened());
    socket.addEventListener("message", (event) => this.socket === socket && this.received(event.data));
    socket.addEventListener("close", () => this.socket === socket && this.closed());
    this.on.changed(this);
  }

  drop() {
    const socket = this.socket;
    this.socket = null;
    socket.close();
  }

  opened() {
    const again = this.ever, gone = (Date.now() - this.since.getTime()) / 1000;
    this.state = "live";
    this.since = new Date();
    this.attempt = 0;
    this.refused = false;
    this.ever = true;
    this.heard = performance.now();
    this.on.changed(this);
    this.on.opened(again, gone);
  }

  received(text) {
    this.heard = performance.now();
    this.heardAt = new Date();
    let data;
    try {
      data = JSON.parse(text);
    } catch {
      console.error("the server sent something that is not JSON");
      return;
    }
    this.on.message(data);
  }

  closed() {
    this.socket = null;
    if (this.state === "live") {
      this.state = "lost";
      this.since = new Date();
    }
    if (this.attempt >= 1) this.probe();
    const wait = Math.min(LONGEST, FIRST * 2 ** this.attempt) * (0.85 + 0.3 * Math.random());
    this.due = Date.now() + wait;
    this.timer = setTimeout(() => this.connect(), wait);
    this.on.changed(this);
  }

  /** Whether a server is there that does not take our token: one that was started anew has a new one. */
  async probe() {
    try {
      const answer = await fetch("/", { method: "GET", cache: "no-store", redirect: "manual" });
      this.refused = answer.status === 401 || answer.status === 403;
    } catch {
      this.refused = false;
    }
    this.on.changed(this);
  }

  send(message) {
    if (this.state !== "live" || this.socket === null || this.socket.readyState !== WebSocket.OPEN) return false;
    if (this.socket.bufferedAmount > LATEST) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  /** Seconds without a word on an open connection, where that is too long; else null. */
  silence() {
    const gone = performance.now() - this.heard;
    return this.state === "live" && gone > SILENT ? gone / 1000 : null;
  }

  /** What is wrong, in words; empty where all is well. */
  trouble() {
    if (this.state === "live") {
      const silence = this.silence();
      if (silence === null) return "";
      const heard = this.heardAt ?? this.since;
      return `No data from the server since ${clock(heard)} (${seconds(silence, 0)} ago), though the connection is open.`;
    }
    if (this.refused) return `The server at ${location.host} no longer accepts this page: it was restarted. Open the link that it printed.`;
    const gone = (Date.now() - this.since.getTime()) / 1000;
    const wait = this.timer === null ? "trying now" : `next attempt in ${seconds(Math.max(0, (this.due - Date.now()) / 1000), 0)}`;
    if (!this.ever) return gone < 1.5 ? "" : `No server answers at ${location.host} since ${clock(this.since)} (${seconds(gone, 0)}); ${wait}.`;
    return `No connection since ${clock(this.since)} (${seconds(gone, 0)} ago). The page shows the state of that time; ${wait}.`;
  }
}
