// Pictures as SVG, drawn as wide as their place. Each can be walked through with the arrow keys.

import { apart, draw, fixed, make, visible } from "./text.js";

const HOUR = 3_600_000;
const STEPS = [1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
  172800, 345600, 604800, 1209600, 2592000, 7776000, 15552000, 31536000].map((s) => s * 1000);

/** Round numbers from low to high, about so many. */
export function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * size).find((one) => one >= rough * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) found.push(n * step);
  return found;
}

/** Marks of an axis, with as many decimals as their step has. */
export function marked(found) {
  const step = found.length > 1 ? found[1] - found[0] : 0;
  const places = step > 0 ? Math.max(-Math.floor(Math.log10(step) + 1e-9), 0) : 0;
  const plain = step > 0 && places <= 6 && Math.abs(found.at(-1)) < 1e9;
  return plain ? found.map((one) => fixed(one, places)) : apart(found);
}

function dates(low, high, wanted) {
  const step = STEPS.find((one) => one >= (high - low) / wanted) ?? STEPS.at(-1);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return found.map((at) => ({ at, text: dated(at, step) }));
}

function dated(at, step) {
  const text = new Date(at).toISOString();
  if (step >= 24 * HOUR) return text.slice(0, 10);
  return at % (24 * HOUR) === 0 ? text.slice(5, 10) : text.slice(11, step < 60_000 ? 19 : 16);
}

function numbered(found) {
  const texts = marked(found);
  return found.map((at, n) => ({ at, text: texts[n] }));
}

/** A frame with both axes; `place` maps values to points. */
export function frame(width, height, x, y, words) {
  const yTicks = ticks(y.low, y.high, Math.max(Math.floor(height / 48), 2));
  const texts = y.text ? yTicks.map(y.text) : marked(yTicks);
  const left = (y.name ? 32 : 14) + 7.2 * Math.max(...texts.map((text) => text.length));
  const box = { left, right: width - 12, top: 12, bottom: height - 40 };
  const scale = (axis, from, to) => (value) =>
    from + ((value - axis.low) / (axis.high - axis.low || 1)) * (to - from);
  const px = scale(x, box.left, box.right);
  const py = scale(y, box.bottom, box.top);
  const picture = draw("svg", {
    class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: "0",
    "aria-label": words.label,
  });
  yTicks.forEach((one, i) => {
    picture.append(
      draw("line", { class: one === 0 ? "zero" : "grid", x1: box.left, x2: box.right, y1: py(one), y2: py(one) }),
      draw("text", { class: "tick", x: box.left - 6, y: py(one) + 4, "text-anchor": "end" }, texts[i]),
    );
  });
  const room = Math.max(Math.floor((box.right - box.left) / (x.dated ? 96 : 64)), 2);
  const xTicks = x.dated ? dates(x.low, x.high, room)
    : numbered(ticks(x.low, x.high, room));
  for (const { at, text } of xTicks) {
    const half = text.length * 3.4;
    const middle = Math.min(Math.max(px(at), half), width - half);
    picture.append(
      draw("line", { class: "mark", x1: px(at), x2: px(at), y1: box.bottom, y2: box.bottom + 4 }),
      draw("text", { class: "tick", x: middle, y: box.bottom + 17, "text-anchor": "middle" }, text),
    );
  }
  const middle = (box.top + box.bottom) / 2;
  picture.append(
    draw("text", { class: "axis", x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, x.name ?? ""),
    draw("text", { class: "axis", x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, y.name ?? ""),
  );
  return { picture, px, py, box };
}

function range(parts, zero) {
  let low = zero ? 0 : Infinity;
  let high = zero ? 0 : -Infinity;
  for (const one of parts) {
    low = Math.min(low, one[2], one[0]);
    high = Math.max(high, one[3], one[0]);
  }
  if (!(high > low)) [low, high] = Number.isFinite(low) ? [low - 1, low + 1] : [0, 1];
  const spare = (high - low) * 0.05;
  return { low: zero && low === 0 ? 0 : low - spare, high: high + spare };
}

function whisker(x, y1, y2, half) {
  return `M${x} ${y1}V${y2}M${x - half} ${y1}H${x + half}M${x - half} ${y2}H${x + half}`;
}

/** Let pointer and arrow keys walk through items {x, y, text}; what they meet is said below. */
export function walk(picture, items, near) {
  const said = make("p", { class: "said", "aria-live": "polite" }, "");
  const ring = draw("g", { class: "ring", visibility: "hidden" });
  picture.append(ring);
  let now = -1;
  const go = (place) => {
    if (!items.length) return;
    now = Math.min(Math.max(place, 0), items.length - 1);
    ring.replaceChildren(items[now].shape?.() ?? draw("circle", { cx: items[now].x, cy: items[now].y, r: 6 }));
    ring.setAttribute("visibility", "visible");
    said.textContent = visible(items[now].text());
  };
  picture.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: now + 1, ArrowLeft: now < 0 ? items.length - 1 : now - 1, Home: 0, End: items.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    go(moves[event.key]);
  });
  const point = (event) => {
    const rect = picture.getBoundingClientRect();
    const place = near(event.clientX - rect.left, event.clientY - rect.top);
    if (place >= 0) go(place);
  };
  picture.addEventListener("pointermove", point);
  picture.addEventListener("pointerdown", point);
  return make("div", { class: "picture" }, picture, said);
}

function nearestX(items) {
  return (x) => items.reduce((best, one, i) =>
    Math.abs(one.x - x) < Math.abs((items[best]?.x ?? Infinity) - x) ? i : best, -1);
}

/** Points {at, estimate, start, text()} as a line with a band; windows are apart. */
export function line(width, points, words) {
  const height = Math.min(Math.max(width * 0.38, 190), 280);
  const at = points.map((point) => point.at);
  const spare = at.length > 1 ? 0 : HOUR;
  const x = { low: Math.min(...at) - spare, high: Math.max(...at) + spare, dated: words.dated !== false, name: words.x };
  const { picture, px, py, box } = frame(width, height, x, range(points.map((p) => p.estimate), false), words);
  const groups = [];
  const single = new Set(points.map((p) => p.start)).size === points.length;
  for (const point of points) {
    if (!groups.length || (!single && groups.at(-1)[0].start !== point.start)) groups.push([]);
    groups.at(-1).push(point);
  }
  for (const [i, group] of groups.entries()) {
    const xs = group.map((p) => px(p.at));
    const up = group.map((p, n) => `${xs[n]} ${py(p.estimate[3])}`);
    const down = group.map((p, n) => `${xs[n]} ${py(p.estimate[2])}`).reverse();
    if (i > 0) {
      const between = (px(groups[i - 1].at(-1).at) + xs[0]) / 2;
      picture.append(draw("line", { class: "border", x1: between, x2: between, y1: box.top, y2: box.bottom }));
    }
    picture.append(
      draw("path", { class: "band", d: `M${up.join("L")}L${down.join("L")}Z` }),
      draw("path", { class: "line", d: `M${group.map((p, n) => `${xs[n]} ${py(p.estimate[0])}`).join("L")}` }),
    );
  }
  if (points.length <= (box.right - box.left) / 9) {
    const half = points.length > 40 ? 1.5 : 3;
    picture.append(draw("path", { class: "whisker", d: points.map((p) => whisker(px(p.at), py(p.estimate[2]), py(p.estimate[3]), half)).join("") }));
    for (const p of points) picture.append(draw("circle", { class: "dot", cx: px(p.at), cy: py(p.estimate[0]), r: points.length > 40 ? 2 : 3.2 }));
  }
  const items = points.map((p) => ({ x: px(p.at), y: py(p.estimate[0]), text: p.text }));
  return walk(picture, items, nearestX(items));
}

/** Bars {low, high, estimate, text()} over a range; error bars where the estimate has an interval. */
export function bars(width, found, words) {
  const height = Math.min(Math.max(width * 0.38, 190), 280);
  const x = { low: found[0].low, high: found.at(-1).high, dated: words.dated, name: words.x };
  const y = { ...range(found.map((one) => one.estimate), true), text: words.y };
  const { picture, px, py } = frame(width, height, x, y, words);
  const gap = Math.min((px(found[0].high) - px(found[0].low)) * 0.12, 3);
  for (const one of found) {
    const [top, bottom] = [Math.max(one.estimate[0], 0), Math.min(one.estimate[0], 0)].map(py);
    picture.append(draw("rect", {
      class: "bar", x: px(one.low) + gap / 2, y: top, height: Math.max(bottom - top, 0.5),
      width: Math.max(px(one.high) - px(one.low) - gap, 0.5),
    }));
  }
  const middle = (one) => (px(one.low) + px(one.high)) / 2;
  const half = Math.min((px(found[0].high) - px(found[0].low)) / 4, 4);
  const sure = found.filter((one) => one.estimate[3] > one.estimate[2]);
  picture.append(draw("path", { class: "whisker", d: sure.map((one) => whisker(middle(one), py(one.estimate[2]), py(one.estimate[3]), half)).join("") }));
  const items = found.map((one) => ({ x: middle(one), y: py(one.estimate[0]), text: one.text }));
  return walk(picture, items, nearestX(items));
}

/** The interval of one row on a scale that all rows share. */
export function interval(parts, scale) {
  const width = 200;
  const px = (value) => 5 + ((value - scale.low) / (scale.high - scale.low)) * (width - 10);
  const [value, , low, high] = parts;
  const [zero, at] = [px(Math.min(Math.max(0, scale.low), scale.high)), px(value)];
  return draw("svg", { class: "interval", viewBox: `0 0 ${width} 16`, preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("line", { class: "zero", x1: zero, x2: zero, y1: 0, y2: 16 }),
    draw("rect", { class: "bar", x: Math.min(zero, at), y: 3.5, width: Math.abs(at - zero), height: 9 }),
    draw("path", { class: "whisker", d: `M${px(low)} 8H${px(high)}M${px(low)} 4V12M${px(high)} 4V12` }),
    draw("path", { class: "point", d: `M${at} 2.5V13.5` }));
}

/** Common scale of rows. */
export function scaleOf(rows) {
  return range(rows.map((row) => row.estimate).filter(Boolean), true);
}

/** A row's value over the releases of its window. */
export function spark(points) {
  const [width, height] = [84, 20];
  if (points.length < 2) return draw("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const values = points.map((point) => point[1]);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const path = points.map(([at, value]) =>
    `${3 + ((at - first) / (last - first || 1)) * (width - 8)} ${height - 3 - ((value - low) / (high - low || 1)) * (height - 6)}`);
  const [x, y] = path.at(-1).split(" ");
  return draw("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    draw("path", { class: "line", d: `M${path.join("L")}` }), draw("circle", { class: "dot", cx: x, cy: y, r: 2.2 }));
}

/** Share of a limit that is spent. */
export function share(spent, label) {
  const part = Math.min(Math.max(spent, 0), 1);
  return draw("svg", { class: "share", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": label },
    draw("rect", { class: "whole", width: 100, height: 8, rx: 2 }),
    draw("rect", { class: "spent", width: 100 * part, height: 8, rx: 2 }));
}

