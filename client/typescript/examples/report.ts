/**
 * Reports of one device, from lines of JSON to lines of JSON:
 *
 *     node dist/examples/report.js FOLDER SURVEY.json EPSILON DAYS < requests.jsonl
 *
 * A request is {"user", "slot", "value"} and, for the value group, "theta". FOLDER keeps the
 * reports and the budget. A request that is refused gives {"error"}.
 */

import { readFileSync } from "node:fs";

import { Client, ReportError, ReportStore, Survey } from "../src/index.ts";
import { FolderKeeper } from "../src/node_keeper.ts";

const [folder, published, epsilon, days] = process.argv.slice(2);
if (!folder || !published || !epsilon || !days) {
  console.error("usage: report.js FOLDER SURVEY.json EPSILON DAYS < requests.jsonl");
  process.exit(2);
}
const survey = await Survey.fromJson(readFileSync(published, "utf8"));
const store = await ReportStore.open(
  new FolderKeeper(folder), { epsilon, days: Number(days) },
);
const client = new Client(survey, store);
for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const { user, slot, value, theta } = JSON.parse(line);
  try {
    console.log(await client.report(user, slot, value, theta));
  } catch (error) {
    if (!(error instanceof ReportError)) throw error;
    console.log(JSON.stringify({ error: error.message }));
  }
}
