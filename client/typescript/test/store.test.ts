/** A device's budget over all surveys, and reports that stay the same whatever happens. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import { Client, ReportError, ReportStore, Survey, VALUE } from "../src/index.ts";
import { FolderKeeper } from "../src/node_keeper.ts";
import { MemoryKeeper } from "./memory_keeper.ts";

const DAY = 86_400;

const survey = (salt: string, more: object = {}): Promise<Survey> => Survey.fromJson(
  JSON.stringify({ epsilon: "1/2", bound: "100", salt, share: "1/4", reports: 3, buckets: 32, levels: 16, ...more }),
);

async function valued(of: Survey): Promise<string> {
  for (let i = 0; ; i++) if (await of.group(`u${i}`) === VALUE) return `u${i}`;
}

async function folder(work: (path: string) => Promise<void>): Promise<void> {
  const path = mkdtempSync(join(tmpdir(), "hüsh "));
  try {
    await work(path);
  } finally {
    rmSync(path, { recursive: true });
  }
}

test("a retry sends the same bytes, from a new process as well", () => folder(async (path) => {
  const mine = await survey("s");
  const user = await valued(mine);
  const first = await ReportStore.open(new FolderKeeper(path), { epsilon: "10", days: 0 });
  const sent = await new Client(mine, first).report(user, 1, 40, 5);
  for (const value of [0, 40, 99.5, 1e9]) {
    const again = await ReportStore.open(new FolderKeeper(path));
    assert.equal(await new Client(mine, again).report(user, 1, value, 9), sent);
  }
  assert.equal(await first.left(), "19/2");
}));

test("all surveys together cost the budget at most, whatever users they name", async () => {
  const store = await ReportStore.open(new MemoryKeeper(), { epsilon: "5/4", days: 0 });
  for (const salt of ["a", "b"]) {
    const one = await survey(salt);
    await new Client(one, store).report(await valued(one), 7, 40, 5);
  }
  const third = await survey("c");
  const refused = new Client(third, store).report("somebody else", 7, 40, 5);
  await assert.rejects(refused, /ε = 5\/4 for ever: 1 is spent, this report would cost ε = 1\/2/);
  assert.equal(await store.left(), "1/4");
});

test("a user has so many reports in each period and no more", async () => {
  const store = await ReportStore.open(new MemoryKeeper(), { epsilon: "50", days: 0 });
  const one = await survey("s", { reports: 2, period: 7 });
  const [client, user] = [new Client(one, store), await valued(one)];
  for (const slot of [7, 6, 0, 13]) await client.report(user, slot, 40, 5);
  for (const slot of [1, 5, 8, 12]) {
    await assert.rejects(client.report(user, slot, 40, 5), /reports = 2/);
  }
  await client.report(user, 14, 40, 5);
  assert.equal(await store.left(), "95/2");
});

test("the budget comes back with the days, and a clock set back changes nothing", async () => {
  let now = 1_000_000_000;
  const keeper = new MemoryKeeper();
  const store = await ReportStore.open(keeper, { epsilon: "1/2", days: 2 }, () => now);
  const one = await survey("s");
  const [client, user] = [new Client(one, store), await valued(one)];
  await client.report(user, 1, 40, 5);
  now -= 10 * DAY;
  await assert.rejects(client.report(user, 2, 40, 5), /is spent/);
  now += 12 * DAY;
  await assert.rejects(client.report(user, 2, 40, 5), /is spent/);
  now += 1;
  await client.report(user, 2, 40, 5);
});

test("a report made while the clock is back is as old as the newest one", async () => {
  let now = 1_000_000_000;
  const store = await ReportStore.open(new MemoryKeeper(), { epsilon: "1", days: 2 }, () => now);
  const one = await survey("s");
  const [client, user] = [new Client(one, store), await valued(one)];
  await client.report(user, 1, 40, 5);
  now -= 10 * DAY;
  await client.report(user, 2, 40, 5);
  now += 11 * DAY;
  await assert.rejects(client.report(user, 3, 40, 5), /1 is spent/);
});

test("a clock that is no time spends nothing and frees nothing", async () => {
  for (const days of [0, 2]) {
    let now = 1_000_000_000;
    const keeper = new MemoryKeeper();
    const store = await ReportStore.open(keeper, { epsilon: "1/2", days }, () => now);
    const one = await survey("s");
    const [client, user] = [new Client(one, store), await valued(one)];
    const first = await client.report(user, 1, 40, 5);
    for (now of [NaN, Infinity, -Infinity]) {
      const kept = keeper.kept;
      await assert.rejects(client.report(user, 2, 40, 5), days ? /clock = / : /is spent/);
      assert.equal(await client.report(user, 1, 40, 5), first);
      assert.equal(keeper.kept, kept);
    }
  }
  const store = await ReportStore.open(new MemoryKeeper(), { epsilon: "9", days: 0 }, () => NaN);
  const one = await survey("s");
  await assert.rejects(new Client(one, store).report(await valued(one), 1, 40, 5), /clock = NaN/);
});

test("a kept report without its cost or its time is refused", async () => {
  for (const broken of [{ made: null }, { made: 0.5 }, { epsilon: 1 }, { slot: "1" }, { payload: 0 }]) {
    const keeper = new MemoryKeeper();
    const store = await ReportStore.open(keeper, { epsilon: "1", days: 2 });
    const one = await survey("s");
    await new Client(one, store).report(await valued(one), 1, 40, 5);
    const kept = JSON.parse(keeper.kept ?? "") as { reports: object[] };
    keeper.kept = JSON.stringify({ ...kept, reports: [{ ...kept.reports[0], ...broken }] });
    await assert.rejects(store.left(), /damaged/);
  }
});

test("a store keeps its budget, and is told of it once", async () => {
  const keeper = new MemoryKeeper();
  await assert.rejects(ReportStore.open(keeper), /a new store must be told/);
  const store = await ReportStore.open(keeper, { epsilon: "2/4", days: 0 });
  await ReportStore.open(keeper, { epsilon: "1/2", days: 0 });
  await assert.rejects(ReportStore.open(keeper, { epsilon: "9", days: 0 }), /this store's is ε = 1\/2/);
  await store.change({ epsilon: "9", days: 1 });
  await ReportStore.open(keeper, { epsilon: "9", days: 1 });
  for (const bad of [{ epsilon: "0", days: 0 }, { epsilon: "-1", days: 0 }, { epsilon: "1", days: -1 },
    { epsilon: "1", days: 0.5 }]) {
    await assert.rejects(store.change(bad), ReportError);
  }
});

test("what is damaged is refused, and nothing is made in its place", async () => {
  const one = await survey("s");
  const user = await valued(one);
  for (const damaged of ["", "{", "null", "{}", '{"format":"hush.store/9"}']) {
    const keeper = new MemoryKeeper();
    const store = await ReportStore.open(keeper, { epsilon: "1", days: 0 });
    keeper.kept = damaged;
    await assert.rejects(new Client(one, store).report(user, 1, 40, 5), /damaged/);
    await assert.rejects(ReportStore.open(keeper, { epsilon: "1", days: 0 }), /damaged/);
    assert.equal(keeper.kept, damaged);
  }
  const keeper = new MemoryKeeper();
  const store = await ReportStore.open(keeper, { epsilon: "1", days: 0 });
  keeper.kept = undefined;
  await assert.rejects(new Client(one, store).report(user, 1, 40, 5), /is gone/);
});

test("no bad argument spends anything, and no error shows a value", async () => {
  const store = await ReportStore.open(new MemoryKeeper(), { epsilon: "50", days: 0 });
  const one = await survey("s");
  const [client, user] = [new Client(one, store), await valued(one)];
  const cases: [string, number, unknown, number | undefined][] = [
    [user, -1, 40, 5], [user, 2 ** 32, 40, 5], [user, 1.5, 40, 5], [user, 1, NaN, 5],
    [user, 1, Infinity, 5], [user, 1, "40", 5], [user, 1, null, 5], [user, 1, 40, undefined],
    [user, 1, 40, 0], [user, 1, 40, 33], [user, 1, 40, 1.5], ["\ud800", 1, 40, 5],
  ];
  for (const [who, slot, value, theta] of cases) {
    await assert.rejects(client.report(who, slot, value, theta), (error: Error) => {
      assert.ok(error instanceof ReportError, String(error));
      assert.ok(!error.message.includes("40"));
      return true;
    });
  }
  assert.equal(await store.left(), "50");
});

test("processes that race for one slot and one budget agree", () => folder(async (path) => {
  const mine = await survey("s", { reports: 40 });
  const user = await valued(mine);
  await ReportStore.open(new FolderKeeper(path), { epsilon: "5", days: 0 });
  const published = join(path, "survey.txt");
  writeFileSync(published, mine.json);
  const requests = Array.from({ length: 12 }, (_, slot) =>
    JSON.stringify({ user, slot, value: 40, theta: 5 })).join("\n");
  const here = new URL(import.meta.url).pathname;
  const script = decodeURIComponent(here).replace(/test\/store\.test\.(ts|js)$/, "examples/report.$1");
  const said = await Promise.all([0, 1, 2].map(() => new Promise<string>((done, failed) => {
    const child = spawn(process.execPath, [script, path, published, "5", "0"]);
    let out = "";
    child.stdout.on("data", (data) => { out += data; });
    child.stderr.on("data", (data) => failed(new Error(String(data))));
    child.on("close", () => done(out));
    child.stdin.end(requests);
  })));
  assert.equal(new Set(said).size, 1, "all say the same of each slot");
  const lines = said[0]!.trim().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(lines.map((line) => "error" in line), [...Array(10).fill(false), true, true]);
  const store = await ReportStore.open(new FolderKeeper(path));
  assert.equal(await store.left(), "0");
  assert.ok(readdirSync(path).filter((name) => name.startsWith("draft")).length === 0);
}));

test("a draft that a crash left behind is not what was kept", () => folder(async (path) => {
  const store = await ReportStore.open(new FolderKeeper(path), { epsilon: "5", days: 0 });
  writeFileSync(join(path, "draft-1"), "half of so");
  assert.equal(await store.left(), "5");
}));
