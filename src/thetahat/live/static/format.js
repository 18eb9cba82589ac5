/* Numbers, times and names as people read them. */

export const NONE = "–";
const MINUS = "−";

const known = (value) => typeof value === "number" && Number.isFinite(value);
const grouped = (text) => text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

/** A number with so many significant digits; a dash where there is none. */
export function number(value, digits = 3) {
  if (!known(value)) return NONE;
  const size = Math.abs(value);
  let text;
  if (size === 0) text = "0";
  else if (size >= 1e6 || size < 1e-3) text = value.toExponential(digits - 1).replace("e+", "e").replace("e-", `e${MINUS}`);
  else if (size >= 10 ** digits) text = grouped(value.toFixed(0));
  else text = value.toPrecision(digits);
  return text.replace(/^-/, MINUS);
}

/** A value no finer than what it is known to: beside ± 0.0016, −4.74e−5 is 0.0000 and no more. */
export function beside(value, spread, digits = 3) {
  if (!known(value) || !known(spread) || spread < 1e-3 || spread >= 1e3 || Math.abs(value) >= spread) return number(value, digits);
  const decimals = Math.max(0, 1 - Math.floor(Math.log10(spread)));
  const text = value.toFixed(decimals);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", MINUS);
}

export function whole(value) {
  return known(value) ? grouped(Math.round(value).toString()).replace("-", MINUS) : NONE;
}

/** R² with decimals; never rounded up to one. */
export function score(value, decimals = 3) {
  if (!known(value)) return NONE;
  if (value < -9.995) return `< ${MINUS}9.99`;
  const text = value.toFixed(decimals);
  if (Number(text) === 1) return `> ${(1 - 10 ** -decimals).toFixed(decimals)}`;
  return text.replace("-", MINUS);
}

/** A time of the stream or a duration [s]. */
export function seconds(value, decimals = 1) {
  if (!known(value)) return NONE;
  if (Math.abs(value) < 100) return `${value.toFixed(decimals).replace("-", MINUS)} s`;
  const all = Math.floor(value), s = String(all % 60).padStart(2, "0"), m = Math.floor(all / 60) % 60, h = Math.floor(all / 3600);
  return h ? `${h} h ${String(m).padStart(2, "0")} min` : `${m} min ${s} s`;
}

/** The time of day, as the reader's clock shows it. */
export function clock(date) {
  return date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

/** Text that was made safe for Plotly (figures.base.shown), letter by letter again. */
export function plain(text) {
  return String(text ?? "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
}

/** An element with a class and text; whatever the text is, it stays text. */
export function element(tag, kind = "", text = "") {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (text !== "") node.textContent = text;
  return node;
}

/** Write text only where it changed: what is written is laid out anew. */
export function write(node, text) {
  if (node.firstChild === null || node.textContent !== text) node.textContent = text;
}
