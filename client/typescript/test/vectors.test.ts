/** The committed test vectors: whatever a device computes, byte by byte. */

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import test from "node:test";

import { expBelow } from "../src/channels.ts";
import { parseRational, rational, text } from "../src/rational.ts";
import { below } from "../src/sampling.ts";
import { Client, publishedThreshold, ReportError, ReportStore, Survey } from "../src/index.ts";
import { MemoryKeeper } from "./memory_keeper.ts";

function load(): any {
  for (let folder = new URL(".", import.meta.url); ; folder = new URL("..", folder)) {
    const file = new URL("vectors.json", folder);
    if (existsSync(file)) return JSON.parse(readFileSync(file, "utf8"));
    if (folder.pathname === "/") throw new Error("vectors.json was not found");
  }
}

const vectors = load();
const surveys: Survey[] = [];
for (const one of vectors.surveys) surveys.push(await Survey.fromJson(one.published));

test("partial sums of e^x are rounded down to 128 bits", () => {
  assert.ok(vectors.exp_below.length > 3);
  for (const { x, times_2_128 } of vectors.exp_below) {
    const found = expBelow(parseRational("x", x));
    assert.equal(text(found), text(rational(BigInt(times_2_128), 1n << 128n)), x);
  }
});

test("surveys have their canonical text, digest, number and tables", () => {
  assert.ok(surveys.length > 3);
  vectors.surveys.forEach((one: any, i: number) => {
    const survey = surveys[i]!;
    assert.equal(survey.json, one.canonical);
    assert.equal(survey.digest, one.digest);
    assert.equal(survey.number, one.number);
    const { squareWave: wave, hybrid } = survey;
    assert.deepEqual(
      [wave.width, wave.high, wave.total, wave.outputs].map(String),
      [one.square_wave.width, one.square_wave.high, one.square_wave.total,
        one.square_wave.outputs].map(String),
    );
    assert.equal(text(hybrid.mix), one.hybrid.mix);
    assert.equal(String(hybrid.piecewise.width), String(one.hybrid.width));
    assert.equal(String(hybrid.piecewise.total), one.hybrid.piecewise_total);
    assert.equal(String(hybrid.twoPoint.total), one.hybrid.two_point_total);
    assert.equal(String(hybrid.outputs), String(one.hybrid.outputs));
  });
});

test("what is no survey is refused", async () => {
  assert.ok(vectors.no_surveys.length > 5);
  for (const published of vectors.no_surveys) {
    await assert.rejects(Survey.fromJson(published), ReportError, published);
  }
});

test("users have their groups", async () => {
  for (const { survey, user, group } of vectors.groups) {
    assert.equal(await surveys[survey]!.group(user), group, user);
  }
  assert.equal(new Set(vectors.groups.map((one: any) => one.group)).size, 3);
});

test("slots lie in their periods", () => {
  for (const { survey, slot, first, end } of vectors.periods) {
    assert.deepEqual(surveys[survey]!.periodOf(slot), [first, end]);
  }
});

test("integers are drawn by rejection", (context) => {
  for (const { below: n, bits, words, drawn } of vectors.draws) {
    const left: string[] = [...words];
    context.mock.method(crypto, "getRandomValues", (bytes: Uint8Array) => {
      let word = BigInt(left.shift() ?? 0) << BigInt(8 * bytes.length - bits);
      for (let i = bytes.length - 1; i >= 0; i--, word >>= 8n) bytes[i] = Number(word & 0xffn);
      return bytes;
    });
    assert.equal(String(below(BigInt(n))), drawn);
    assert.equal(left.length, 0);
    context.mock.restoreAll();
  }
});

test("the same draws give the same bytes", async () => {
  assert.ok(vectors.reports.length > 20);
  for (const one of vectors.reports) {
    const draws = [...one.draws];
    const store = await ReportStore.open(new MemoryKeeper(), { epsilon: "1000", days: 0 });
    const client = new Client(surveys[one.survey]!, store, (n) => {
      const next = draws.shift();
      assert.equal(String(n), next.below);
      return BigInt(next.drawn);
    });
    const made = await client.report(one.user, one.slot, one.value, one.theta ?? undefined);
    assert.equal(made, one.payload);
    assert.equal(draws.length, 0);
  }
});

test("thresholds are found in the window's own manifest alone", () => {
  for (const { survey, record, slot, group, theta } of vectors.thresholds) {
    const found = publishedThreshold(record, surveys[survey]!, slot ?? undefined, group);
    assert.equal(found ?? null, theta, record);
  }
});
