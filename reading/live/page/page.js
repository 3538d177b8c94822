// The page: what there is, what is new, and whether anybody is still there to say so.

import { badge, none, Panel } from "./panel.js";
import { about, make, table, visible, when } from "./text.js";

const AGAIN = 30_000; // ages and lateness grow without any event
const panels = new Map();
const at = (id) => document.getElementById(id);
let known = new Map();
let busy = false;
let late = false;

function connection(good, words) {
  at("link").className = `link ${good ? "good" : "bad"}`;
  if (at("link-words").textContent !== words) at("link-words").textContent = words;
}

function overview(summary) {
  const rows = summary.pipelines.map((told) => {
    const budget = told.budget;
    const left = budget.limit === null ? `ε=${about((budget.shared ?? budget).total)} spent` : `ε=${about(budget.left)} of ${about(budget.limit)} left`;
    return [
      make("a", { href: `#${panels.get(told.name).id}` }, told.name), told.mechanism,
      told.health.last === null ? none(told) : when(told.health.last), left, badge(told.health.state),
    ];
  });
  const focused = at("overview").contains(document.activeElement) ? document.activeElement.textContent : null;
  at("overview").replaceChildren(...(rows.length ? [table("All pipelines", ["pipeline", "mechanism", "newest release", "budget", "state"], rows, "summary")] : []));
  if (focused !== null) [...at("overview").querySelectorAll("a")].find((one) => one.textContent === focused)?.focus();
}

function announce(summary) {
  const fresh = summary.pipelines.filter((told) => known.has(told.name) && known.get(told.name) !== told.health.last);
  if (fresh.length) at("news").textContent = visible(`New releases: ${fresh.map((told) => `${told.name}, ${when(told.health.last)}`).join("; ")}.`);
  known = new Map(summary.pipelines.map((told) => [told.name, told.health.last]));
}

function show(summary) {
  at("deployment").textContent = visible(summary.deployment);
  document.title = visible(`${summary.deployment} – Hushstream live`);
  connection(summary.link.good, summary.link.words);
  for (const told of summary.pipelines) {
    if (!panels.has(told.name)) {
      const panel = new Panel(told, `pipeline-${panels.size + 1}`);
      panels.set(told.name, panel);
      at("pipelines").append(panel.element);
    }
    panels.get(told.name).update(told);
  }
  overview(summary);
  announce(summary);
}

async function refresh() {
  if (busy) {
    late = true; // another change came meanwhile: look once more
    return;
  }
  busy = true;
  try {
    const answer = await fetch("summary.json");
    const body = await answer.json();
    if (answer.ok) show(body);
    else connection(false, body.error);
  } catch {
    connection(false, "This page has lost its server, and tries to reach it again. What was read before is shown.");
  } finally {
    busy = false;
    if (late) {
      late = false;
      refresh();
    }
  }
}

const events = new EventSource("events");
events.addEventListener("change", refresh);
events.addEventListener("error", refresh);
setInterval(refresh, AGAIN);
refresh();
