// One pipeline: its choices, its figures, and a table behind each picture.

import { bars, interval, line, scaleOf, share, spark } from "./charts.js";
import { map, placed } from "./map.js";
import { about, count, estimate, make, sentence, span, table, visible, when } from "./text.js";

const SIZES = [12, 50, 200];
const LISTED = 200; // rows of a table behind a picture
const MARKS = { good: "●", waiting: "◌", asked: "○", ended: "○", late: "▲", stopped: "■" };
const STATES = { good: "on time", waiting: "waiting", asked: "on request", ended: "ended", late: "stale", stopped: "stopped" };

/** State as a sign and a word: colour alone says nothing. */
export function badge(state) {
  return make("span", { class: `badge ${state}` }, make("span", { "aria-hidden": "true" }, MARKS[state] ?? "○"), ` ${STATES[state] ?? state}`);
}

/** What to say where there is no release. */
export function none(told) {
  return told.health.state === "ended" ? "none" : "none yet";
}

function option(value, text) {
  return make("option", { value }, text);
}

/** Give a choice other options; what was chosen stays, if it is still there. */
function offer(select, options) {
  const chosen = select.value;
  if (document.activeElement === select && select.options.length === options.length) return;
  select.replaceChildren(...options);
  if ([...select.options].some((one) => one.value === chosen)) select.value = chosen;
}

export class Panel {
  constructor(told, id) {
    this.name = told.name;
    this.id = id;
    this.page = 0;
    this.key = null;
    this.asked = 0;
    this.told = told;
    this.version = -1;
    this.build();
  }

  build() {
    const again = () => { this.page = 0; this.load(); };
    const labelled = (text, control) => make("label", {}, make("span", {}, text), control);
    this.window = make("select", { onchange: () => { this.release.value = ""; again(); } });
    this.release = make("select", { onchange: again });
    this.value = make("select", { onchange: again });
    this.size = make("select", { onchange: again }, ...SIZES.map((n) => option(n, String(n))));
    this.search = make("input", { type: "search", autocomplete: "off", spellcheck: "false", placeholder: "part of a key", oninput: () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(again, 200);
    } });
    this.valueLabel = labelled("Value", this.value);
    this.searchLabel = labelled("Filter", this.search);
    this.sizeLabel = labelled("Rows", this.size);
    this.health = make("p", { class: "health" });
    this.what = make("p", { class: "what" });
    this.figure = make("div", { class: "figure newest" });
    this.pager = make("div", { class: "pager" });
    this.movement = make("div", { class: "figure movement" });
    this.budget = make("div", { class: "budget" });
    this.element = make("section", { class: "panel", id: this.id, "aria-labelledby": `${this.id}-title` },
      make("h2", { id: `${this.id}-title` }, this.name), this.health, this.what,
      make("div", { class: "choices", role: "group", "aria-label": `Choices for ${this.name}` },
        labelled("Window", this.window), labelled("Release", this.release), this.valueLabel, this.searchLabel, this.sizeLabel),
      this.figure, this.pager, this.movement, this.budget);
    new ResizeObserver(() => this.resized()).observe(this.element);
  }

  resized() {
    const width = this.figure.clientWidth;
    if (this.view && width && width !== this.width) this.render();
  }

  /** Take the newest summary of the pipeline, and load its values if they have changed. */
  update(told) {
    this.told = told;
    this.health.replaceChildren(badge(told.health.state), " ", visible(told.health.words));
    const newest = told.windows[0];
    offer(this.window, [option("", newest ? `newest: ${span(newest.start, newest.end)}` : none(told)),
      ...told.windows.slice(1).map((one) => option(one.start, span(one.start, one.end)))]);
    this.releases();
    this.spend(told.budget);
    if (told.version !== this.version) this.load();
  }

  releases() {
    const windows = this.told.windows;
    const chosen = this.window.value ? windows.find((one) => String(one.start) === this.window.value) : windows[0];
    const listed = [...(chosen?.releases ?? [])].reverse();
    offer(this.release, [option("", listed.length ? `newest: ${listed[0][0]} of ${chosen.triggers}` : none(this.told)),
      ...listed.slice(1).map(([trigger, at]) => option(trigger, `${trigger}, ${when(at)}`))]);
  }

  async load() {
    const turn = ++this.asked;
    const query = new URLSearchParams({ name: this.name, page: this.page, size: this.size.value });
    if (this.window.value) query.set("window", this.window.value);
    if (this.release.value) query.set("trigger", this.release.value);
    if (this.value.value) query.set("value", this.value.value);
    if (this.search.value) query.set("search", this.search.value);
    if (this.key !== null) query.set("key", this.key);
    let view;
    try {
      const answer = await fetch(`view.json?${query}`);
      if (!answer.ok) return;
      view = await answer.json();
    } catch {
      return; // the server is away: the page says so, and asks again when it is back
    }
    if (turn !== this.asked) return;
    this.version = view.version;
    this.view = view;
    this.releases();
    this.render();
  }

  render() {
    const view = this.view;
    this.width = this.figure.clientWidth;
    this.element.classList.toggle("empty", Boolean(view.empty));
    if (view.empty) {
      this.what.textContent = visible(`${this.told.mechanism}, unit: ${this.told.unit}`);
      this.figure.replaceChildren(make("p", { class: "quiet" }, this.told.health.state === "ended" ? "Nothing was released." : "There is nothing to show yet."));
      for (const one of [this.pager, this.movement]) one.replaceChildren();
      return;
    }
    offer(this.value, view.values.map((name) => option(name, name)));
    this.valueLabel.hidden = view.values.length < 2;
    this.searchLabel.hidden = this.sizeLabel.hidden = view.form !== "keys";
    const last = view.final ? ", the window's last" : "";
    const [held, whole] = view.hops ?? [1, 1];
    const part = held < whole ? `, with only the last ${held} of its ${whole} hops` : "";
    this.what.textContent = visible(`Release ${view.trigger} of ${view.triggers}${last}, ${when(view.released)}${part} · ${this.told.mechanism} · unit: ${this.told.unit} · intervals of ${about(view.confidence * 100)} %, of the noise alone · ${cut(view, this.told.unit)}${beyond(view)}`);
    this[{ keys: "keys", cells: "cells", slots: "slots", stream: "stream" }[view.form]](view);
  }

  /** What a picture shows, then the picture, then its numbers. */
  shown(place, title, picture, heads, rows, note) {
    const open = place.querySelector("details")?.open ?? false;
    const kept = rows.slice(0, LISTED);
    const more = rows.length > kept.length ? ` (the first ${kept.length} of ${rows.length.toLocaleString("en-US")})` : "";
    const focused = place.contains(document.activeElement) && document.activeElement.matches("svg");
    place.replaceChildren(make("h3", {}, title), ...(note ? [make("p", { class: "note" }, note)] : []), picture,
      make("details", { open }, make("summary", {}, `Numbers${more}`), table(title, heads, kept)));
    if (focused) place.querySelector("svg")?.focus();
  }

  keys(view) {
    const scale = scaleOf(view.rows);
    const chosen = view.trend.id;
    const rows = view.rows.map((row) => {
      const { value, reach } = estimate(row.estimate);
      const choose = make("button", { type: "button", class: "key", "aria-pressed": row.id === chosen ? "true" : "false", title: `Show how ${row.key} moved`, onclick: () => { this.key = row.id; this.load(); } }, row.key || "(no key)");
      return make("tr", { role: "row", class: row.id === chosen ? "chosen" : null },
        make("th", { role: "rowheader", scope: "row" }, choose),
        make("td", { role: "cell", class: "number", title: sentence(row.estimate) }, value, " ", make("span", { class: "reach" }, reach)),
        make("td", { role: "cell", class: "wide" }, row.estimate ? interval(row.estimate, scale) : ""),
        make("td", { role: "cell", class: "moves" }, spark(row.spark)));
    });
    const heads = [[view.key_names.join(" / ") || "key", ""], [`${view.value} and error`, "number"], [`from ${about(scale.low)} to ${about(scale.high)}`, "wide"], ["moved", "moves"]];
    const focus = this.figure.contains(document.activeElement) ? document.activeElement.textContent : null;
    const hint = view.rows.length ? " Choose a key to see how it moved." : "";
    const found = this.search.value ? `${count(view.matching, "key")} of ${view.number.toLocaleString("en-US")} match` : count(view.number, "released key");
    this.figure.replaceChildren(make("h3", {}, view.ordered ? `${view.value} by ${view.key_names.join(" / ")}` : `Largest values of ${view.value}`), make("p", { class: "note", role: "status" }, `${found}.${hint}`),
      view.rows.length ? make("table", { class: "keys", role: "table", "aria-label": `${this.name}, ${view.value} by key` },
        make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...heads.map(([text, name]) => make("th", { role: "columnheader", scope: "col", class: name || null }, text)))),
        make("tbody", { role: "rowgroup" }, ...rows)) : make("p", { class: "quiet" }, view.number ? "No released key matches." : view.final ? "No key was released in this window: none had enough units." : "No key has been released in this window yet: one appears once enough units have it."));
    if (focus !== null) [...this.figure.querySelectorAll("button")].find((one) => one.textContent === focus)?.focus();
    this.turn(view);
    this.trend(view, `How ${view.trend.key || "it"} moved`);
  }

  turn(view) {
    const last = Math.max(Math.ceil(view.matching / view.size) - 1, 0);
    const focused = document.activeElement?.closest(".pager") === this.pager ? document.activeElement.textContent : null;
    const step = (to, text) => make("button", { type: "button", disabled: to < 0 || to > last, onclick: () => { this.page = to; this.load(); } }, text);
    if (!last) return this.pager.replaceChildren();
    this.pager.replaceChildren(step(view.page - 1, "Previous"), make("span", {}, `Page ${view.page + 1} of ${(last + 1).toLocaleString("en-US")}`), step(view.page + 1, "Next"));
    const again = [...this.pager.querySelectorAll("button:enabled")];
    if (focused) (again.find((one) => one.textContent === focused) ?? again[0])?.focus();
    return undefined;
  }

  trend(view, title) {
    const points = view.trend.points.filter((point) => point.estimate);
    if (!points.length) return this.movement.replaceChildren();
    const named = view.trend.key || "All cells together";
    const listed = points.map((p) => ({ ...p, text: () => `${when(p.at)}, release ${p.trigger}: ${sentence(p.estimate)}` }));
    const label = `${title}: ${view.value} of ${named} over ${count(points.length, "release")}. The last one is ${sentence(points.at(-1).estimate)}. Arrow keys walk through them.`;
    const rows = [...points].reverse().map((p) => [when(p.at), String(p.trigger), ...cells(p.estimate)]);
    this.shown(this.movement, title, line(this.width, listed, { label, x: "scheduled time of the release, UTC" }), ["release", "trigger", view.value, "error", "low", "high"], rows);
    return undefined;
  }

  cells(view) {
    this.pager.replaceChildren();
    view.cells.sort((a, b) => b[4] - a[4]);
    const axes = view.axes.length;
    const more = view.hidden_axes.length ? ` Added up over ${view.hidden_axes.join(" and ")}.` : "";
    const { value, reach } = estimate(view.total.estimate);
    const note = `${count(view.number, "cell")}, ${value} ${reach} in all.${more}`;
    if (!view.cells.length) {
      this.figure.replaceChildren(make("p", { class: "quiet" }, "No cell has a value."));
    } else if (axes === 1) {
      const parts = view.cells.map((cell) => ({ low: cell[0], high: cell[1], estimate: cell.slice(2), text: () => `${placed(view, cell)}: ${sentence(cell.slice(2))}` })).sort((a, b) => a.low - b.low);
      const wide = parts.map((one) => { // height is density: cells differ in width
        const size = (one.high - one.low) / (view.axes[0][2] - view.axes[0][1]) * 100;
        return { ...one, estimate: one.estimate.map((part) => part / size) };
      });
      const label = `${this.name}: ${view.value} along ${view.axes[0][0]}. ${note} Arrow keys walk through the cells.`;
      this.shown(this.figure, `${view.value} in a hundredth of the range of ${view.axes[0][0]}`, bars(this.width, wide, { label, x: view.axes[0][0] }), ["cell", view.value, "error", "low", "high"], view.cells.map((cell) => [placed(view, cell), ...cells(cell.slice(2))]), note);
    } else {
      const label = `Map of ${view.value}. ${note} The largest is ${placed(view, view.cells[0])}: ${sentence(view.cells[0].slice(4))}. Arrow keys walk through the cells, the largest first.`;
      this.shown(this.figure, `Map of ${view.value}`, map(this.width, view, { label, id: this.id }), ["cell", view.value, "error", "low", "high"], view.cells.map((cell) => [placed(view, cell), ...cells(cell.slice(4))]), note);
    }
    this.trend(view, "How the sum over all cells moved");
  }

  slots(view) {
    this.pager.replaceChildren();
    this.movement.replaceChildren();
    const dated = view.slots[0]?.dated;
    const named = (one) => (dated ? `${when(one.begin)} to ${when(one.end)}` : `slot ${one.slot}`);
    const listed = view.slots.map((one) => ({ ...one, low: one.begin, high: one.end, at: one.end, start: 0, text: () => `${named(one)}: ${sentence(one.estimate)}` }));
    const running = view.value === "prefix";
    const field = this.told.measured ? ` of ${this.told.measured}` : "";
    const title = running ? `Running total${field}` : `Sum${field} in each slot`;
    if (!listed.length) {
      this.figure.replaceChildren(make("p", { class: "quiet" }, view.final ? "No slot was released in this window." : "No slot has been released yet."));
      return;
    }
    const label = `${title}: ${count(listed.length, "slot")}; the last, ${named(listed.at(-1))}, is ${sentence(listed.at(-1).estimate)}. Arrow keys walk through them.`;
    const words = { label, dated, x: dated ? "time of the slot, UTC" : "slot" };
    const rows = [...listed].reverse().map((one) => [named(one), ...cells(one.estimate)]);
    this.shown(this.figure, title, (running ? line : bars)(this.width, listed, words), ["slot", view.value, "error", "low", "high"], rows);
  }

  stream(view) {
    this.pager.replaceChildren();
    if (view.bins.length) {
      const percent = (part) => `${about(part * 100)} %`;
      const found = view.bins.map(([low, high, part]) => ({ low, high, estimate: [part, 0, part, part], text: () => `${about(low)} to ${about(high)}: ${percent(part)}` }));
      const title = `Estimated distribution of ${view.measured}`;
      const most = found.reduce((best, one) => (one.estimate[0] > best.estimate[0] ? one : best));
      const label = `${title}: ${count(found.length, "bucket")}; most lie in ${most.text()}. Arrow keys walk through them.`;
      this.shown(this.figure, title, bars(this.width, found, { label, x: view.measured, y: percent }), ["from", "to", "share"], found.map((one) => [about(one.low), about(one.high), percent(one.estimate[0])]), `From the reports up to ${when(view.binned)}; it has no error bars.`);
    } else {
      this.figure.replaceChildren();
    }
    const { value, reach } = estimate(view.trend.points.at(-1)?.estimate);
    this.trend(view, `${view.value} of ${view.measured || "the values"}: ${value} ${reach}`);
  }

  spend(budget) {
    const open = this.budget.querySelector("details")?.open ?? false;
    const one = `${budget.shared ? "This share: " : ""}ε=${about(budget.epsilon)}, δ=${about(budget.delta)} per ${this.told.unit} and epoch`;
    const less = about(budget.total) !== about(budget.sum) ? ` (their sum: ε=${about(budget.sum)})` : "";
    const all = `${count(budget.charged, "epoch")} charged, ε=${about(budget.total)} in all${less}`;
    const known = budget.limit !== null;
    const whole = budget.shared ?? budget;
    const left = known ? `, of at most ${about(budget.limit)}; ε=${about(budget.left)} left` : budget.charged ? "; no limit is set" : "; the limit is not known yet";
    const local = this.told.local ? " Values never leave the device: this is the cost of what a user reports." : "";
    const rows = budget.epochs.map((epoch) => [span(epoch.start, epoch.end), epoch.refused ? "refused" : about(epoch.epsilon), epoch.refused ? "" : about(epoch.total), epoch.refused || epoch.left === null ? "–" : about(epoch.left)]);
    const title = `Budget of ${this.name} by epoch`;
    const used = whole.total / budget.limit;
    this.budget.replaceChildren(make("h3", {}, "Budget"),
      ...(known ? [share(used, `${about(used * 100)} % of the limit is spent`)] : []),
      make("p", { class: "note" }, `${one}. ${all}${budget.shared ? "" : left}.${budget.refused ? ` ${count(budget.refused, "epoch")} refused.` : ""}${local}`),
      ...(budget.shared ? [make("p", { class: "note together" }, `${together(budget.shared)}${left}.`)] : []),
      ...(budget.cap ? [make("p", { class: "note cap" }, capped(budget.cap, this.told.unit))] : []),
      make("details", { open }, make("summary", {}, "By epoch"), table(title, ["epoch", "charged ε", "in all", "left"], rows)));
  }
}

/** What pipelines that share a budget have spent. */
function together(shared) {
  const less = shared.total < shared.sum ? ` (their sum: ε=${about(shared.sum)})` : "";
  return `Shared budget ${shared.name}, of ${shared.members.join(" and ")} together: ε=${about(shared.epsilon)}, δ=${about(shared.delta)} per epoch. ${count(shared.charged, "epoch")} charged, ε=${about(shared.total)} in all${less}`;
}

/** What is promised to each unit over many epochs; how many records that leaves out is not public. */
function capped(cap, unit) {
  const time = cap.period === null ? "ever" : `in a period of ${cap.period}`;
  const whose = cap.pipelines.length > 1 ? `, by ${cap.pipelines.join(" and ")} together` : "";
  return `Cap for each ${unit}: no ${unit} ${time} loses more than ε=${about(cap.epsilon)}, δ=${about(cap.delta)}${whose}; what would exceed it is left out.`;
}

/** What is known of the records that the contribution bound cut, which no interval covers. */
function cut(view, unit) {
  const most = view.most === null ? "" : `at most ${view.most} of a ${unit}'s records count in an epoch; `;
  const told = view.cut;
  if (!told) return `${most}what the bound cut off is unknown`;
  const part = (share) => `${about(share * 100)} %`;
  const ends = `${part(told.low)} to ${part(told.high)}`;
  return `${most}cut off by the bound: ${told.share === null ? "" : `${part(told.share)}, `}${ends} of the records`;
}

/** What share of the values a learnt threshold cuts, in parts per million, where that is stated. */
function beyond(view) {
  if (!view.beyond) return "";
  const [share, low, high] = view.beyond.map((parts) => `${about(parts / 1e4)} %`);
  return ` · values from the threshold on count as it: ${share} of all (${low} to ${high})`;
}

/** An estimate as cells of a table. */
function cells(parts) {
  const { value, reach } = estimate(parts);
  return [value, reach, about(parts[2], 5), about(parts[3], 5)];
}
