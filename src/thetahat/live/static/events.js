/* What happened, newest first. */

import { element, seconds, whole } from "./format.js";

const MOST = 200; // kept on the page
const SIGNS = { gate: "◆", payload: "▲", contact: "⇥", drift: "≈", fault: "!", dropped: "↓", reset: "↺", forced: "■", info: "i", link: "↔", error: "!" };

export class Events {
  constructor(list, note) {
    this.list = list;
    this.note = note;
    this.empty = list.parentElement.querySelector(".empty");
    this.count = 0;
  }

  set(events) {
    this.list.replaceChildren();
    this.count = 0;
    for (const event of events ?? []) this.add(event);
    this.show();
  }

  add({ t, kind, message }) {
    const item = element("li", "event"), known = kind in SIGNS ? kind : "info";
    item.dataset.kind = known;
    const sign = element("span", "sign", SIGNS[known]);
    sign.setAttribute("aria-hidden", "true");
    const text = element("span", "text");
    text.append(element("span", "kind", String(kind)), " ", element("span", "message", String(message)));
    item.append(element("span", "when", seconds(t)), sign, text);
    this.list.prepend(item);
    this.count += 1;
    while (this.list.childElementCount > MOST) this.list.lastElementChild.remove();
    this.show();
  }

  show() {
    this.empty.hidden = this.count > 0;
    this.note.textContent = this.count ? `${whole(this.count)}, newest first` : "";
  }
}
