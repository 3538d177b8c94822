// Numbers, times and elements. Every text of the stream enters the page as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const DAY = 86_400_000;

// As agents/worker/lines/visible.py: whatever acts, turns text or cannot be seen is written out.
const HIDDEN = /[\0-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f\u00ad\u180e\u200b\u2060-\u2065\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}\p{Cs}]|(?<![^\0-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\0-\x7f])/gu;
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const READ = new Set(["title", "aria-label", "placeholder"]);

/** A text of the stream as a person may see it. */
export function visible(text) {
  return text.replace(HIDDEN, (one) => SHORT[one]
    ?? one.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));
}

/** Make an element: attributes by name, then children; texts become text nodes. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  return filled(element, attributes, children);
}

/** Make an element of a picture. */
export function draw(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (READ.has(name)) element.setAttribute(name, visible(String(value)));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  const given = children.filter((child) => child !== null && child !== undefined);
  element.append(...given.map((child) => typeof child === "string" ? visible(child) : child));
  return element;
}

/** A time in milliseconds since 1970, no longer than it needs to be. */
export function when(time) {
  const text = new Date(time).toISOString();
  if (time % DAY === 0) return text.slice(0, 10);
  return `${text.slice(0, 10)} ${text.slice(11, time % 60_000 === 0 ? 16 : 19)}`;
}

/** A window: one date if it is a whole day. */
export function span(start, end) {
  if (start % DAY === 0 && end - start === DAY) return when(start);
  if (start % DAY === 0 && end % DAY === 0) return `${when(start)} to ${when(end - DAY)}`;
  const last = when(end);
  return `${when(start)} to ${when(start).slice(0, 10) === last.slice(0, 10) ? last.slice(11) : last}`;
}

/** Decimals that show two digits of an error. */
function decimals(reach) {
  if (!(reach > 0)) return 0;
  return Math.min(Math.max(1 - Math.floor(Math.log10(reach)), 0), 9);
}

/** A number with so many decimals. */
export function fixed(value, places) {
  const text = value.toLocaleString("en-US", {
    minimumFractionDigits: places, maximumFractionDigits: places,
  });
  return text.replace(/^-(?=[0.,]*$)/, "").replace("-", "−");
}

/** A number in about so many digits. */
export function about(value, digits = 3) {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size < -4) return value.toExponential(digits - 1).replace(/\.?0*e/, "e").replaceAll("-", "−");
  return fixed(value, Math.max(digits - 1 - size, 0)).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

/** Numbers in as few digits as tell them apart, and no fewer than so many. */
export function apart(values, digits = 3) {
  for (let n = digits; n < 17; n += 1) {
    const texts = values.map((one) => about(one, n));
    if (new Set(texts).size === new Set(values).size) return texts;
  }
  return values.map(String);
}

/** How far an interval reaches from its value: on one side it may be cut at 0. */
const reached = ([value, , low, high]) => Math.max(high - value, value - low);

/** A value and how far its interval reaches: the error in two or three digits, the value as far as that. */
export function estimate(parts) {
  if (!parts) return { value: "–", reach: "" };
  const [value, reach] = [parts[0], reached(parts)];
  const places = decimals(reach);
  return { value: fixed(value, places), reach: `±${fixed(reach, places)}` };
}

/** An estimate as one sentence. */
export function sentence(parts) {
  if (!parts) return "no value";
  const places = decimals(reached(parts));
  const [value, , low, high] = parts.map((part) => fixed(part, places));
  return `${value}, between ${low} and ${high}`;
}

/** A number of things. */
export function count(number, what) {
  return `${number.toLocaleString("en-US")} ${what}${number === 1 ? "" : "s"}`;
}

/** A table with a heading for each column; cells are texts or elements. */
export function table(caption, heads, rows, name = "plain") {
  const row = (cells, kind) => make("tr", {}, ...cells.map((cell, place) => {
    const number = typeof cell === "string" && /^[±−\d.,% ]+$/.test(cell) && !/^\d{4}-/.test(cell);
    return make(kind, { class: number ? "number" : null, scope: kind === "th" ? "col" : null }, cell);
  }));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make("table", { class: name },
      make("caption", { class: "unseen" }, caption),
      make("thead", {}, row(heads, "th")),
      make("tbody", {}, ...rows.map((cells) => row(cells, "td")))));
}
