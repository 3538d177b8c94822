// Cells of a plane, coloured by density: cells differ in size, so their counts would mislead.

import { frame, walk } from "./charts.js";
import { about, apart, draw, make, sentence } from "./text.js";

const CLASSES = 7;
const PARTS = 100; // densities are per hundredth of the map's area

function area(cell) {
  return (cell[1] - cell[0]) * (cell[3] - cell[2]);
}

/** Upper ends of classes that hold about equally many cells with something in them. */
function classes(densities) {
  const found = densities.filter((one) => one > 0).sort((a, b) => a - b);
  const ends = [];
  for (let n = 1; n <= CLASSES; n += 1) {
    const end = found[Math.max(Math.ceil((n * found.length) / CLASSES) - 1, 0)];
    if (end > (ends.at(-1) ?? 0)) ends.push(end);
  }
  return ends;
}

function legend(ends, hatched) {
  const texts = apart(ends, 2);
  const entries = ends.map((end, n) => make("li", {},
    draw("svg", { class: "swatch", viewBox: "0 0 14 14", "aria-hidden": "true" }, draw("rect", { class: shade(n, ends.length), width: 14, height: 14 })),
    `${n ? texts[n - 1] : "0"} to ${texts[n]}`));
  if (hatched) {
    entries.push(make("li", {},
      draw("svg", { class: "swatch", viewBox: "0 0 14 14", "aria-hidden": "true" },
        draw("rect", { class: "empty", width: 14, height: 14 }), draw("path", { class: "hatch", d: "M0 14L14 0M-4 8L8 -4M6 18L18 6" })),
      "may be empty: the interval reaches 0"));
  }
  return make("div", { class: "legend" }, make("p", {}, "In a hundredth of the map's area:"), make("ul", {}, ...entries));
}

/** Class of a shade; few classes take shades that are far apart. */
function shade(n, all) {
  return `shade${all < 2 ? CLASSES - 2 : Math.round((n * (CLASSES - 1)) / (all - 1))}`;
}

const rect = (px, py, cell) => {
  const [x, y] = [px(cell[0]), py(cell[3])];
  return `M${x.toFixed(1)} ${y.toFixed(1)}H${px(cell[1]).toFixed(1)}V${py(cell[2]).toFixed(1)}H${x.toFixed(1)}Z`;
};

function geographic(axes) {
  const [[x, west, east], [y, south, north]] = axes;
  return /lon|lng/i.test(x) && /lat/i.test(y) && west >= -180 && east <= 180 && south >= -90 && north <= 90;
}

/** A map of view.cells: [x low, x high, y low, y high, value, stddev, low, high]. */
export function map(width, view, words) {
  const [[xName, west, east], [yName, south, north]] = view.axes;
  const stretch = geographic(view.axes) ? 1 / Math.max(Math.cos(((south + north) * Math.PI) / 360), 0.2) : 1;
  const ratio = Math.min(Math.max(((north - south) / (east - west)) * stretch, 0.45), 1.15);
  const wide = Math.min(width, 640);
  const height = Math.min((wide - 70) * ratio + 52, 600);
  const whole = (east - west) * (north - south);
  const density = view.cells.map((cell) => (cell[4] / area(cell)) * (whole / PARTS));
  const ends = classes(density);
  const { picture, px, py, box } = frame(wide, height, { low: west, high: east, name: xName }, { low: south, high: north, name: yName }, words);
  const hatch = `hatch-${words.id}`;
  picture.append(draw("defs", {}, draw("pattern", { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
    draw("path", { class: "hatch", d: "M0 6L6 0M-1.5 1.5L1.5 -1.5M4.5 7.5L7.5 4.5" }))));
  const paths = ends.map(() => []);
  const unsure = [];
  view.cells.forEach((cell, n) => {
    const place = ends.findIndex((end) => density[n] <= end);
    if (cell[6] <= 0) unsure.push(rect(px, py, cell));
    if (density[n] > 0) paths[place].push(rect(px, py, cell));
  });
  picture.append(draw("rect", { class: "ground", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top }));
  paths.forEach((path, n) => picture.append(draw("path", { class: `cell ${shade(n, ends.length)}`, d: path.join("") })));
  if (unsure.length) picture.append(draw("path", { class: "unsure", d: unsure.join(""), fill: `url(#${hatch})` }));
  for (const ring of view.rings) {
    picture.append(draw("path", { class: "region", d: `M${ring.map(([x, y]) => `${px(x)} ${py(y)}`).join("L")}Z` }));
  }
  const items = view.cells.map((cell) => ({
    x: px((cell[0] + cell[1]) / 2), y: py((cell[2] + cell[3]) / 2),
    shape: () => draw("path", { d: rect(px, py, cell) }),
    text: () => `${placed(view, cell)}: ${sentence(cell.slice(4))}`,
  }));
  const near = (x, y) => view.cells.findIndex((cell) =>
    px(cell[0]) <= x && x < px(cell[1]) && py(cell[3]) <= y && y < py(cell[2]));
  return make("div", { class: "mapped" }, walk(picture, items, near), legend(ends, unsure.length > 0));
}

/** Where a cell lies, in words. */
export function placed(view, cell) {
  return view.axes.map(([name], n) => `${name} ${about(cell[2 * n], 6)} to ${about(cell[2 * n + 1], 6)}`).join(", ");
}
