/** A user's reports: what leaves the device, byte by byte. */

import { ReportError } from "./errors.ts";
import { multiply, rational, text } from "./rational.ts";
import { below, type Below } from "./sampling.ts";
import type { ReportStore } from "./store.ts";
import {
  CHANNELS, NARROW, RANGE, SLOTS, STEP, VALUE, wellFormed, type Survey,
} from "./survey.ts";

export const SCHEMA = "hush.report/1";

/**
 * Makes each report once and hands out the same bytes ever after.
 *
 * Epsilon-local differential privacy per report, `reports * epsilon` per user and period, and over
 * all surveys together the budget of the store.
 */
export class Client {
  readonly survey: Survey;
  readonly store: ReportStore;
  readonly #uniform: Below;

  constructor(survey: Survey, store: ReportStore, uniform: Below = below) {
    this.survey = survey;
    this.store = store;
    this.#uniform = uniform;
  }

  /**
   * One report as JSON, durably kept before this resolves.
   *
   * `slot` is 0..2^32-1; a second call with the same user and slot gives the same text, whatever
   * its value and theta. `value` is any finite number (or bigint, or fraction) in the user's own
   * units. `theta` is the step that was published for the user's group: the threshold for the
   * value group, the range for the narrow group, which cannot report without it; the range group
   * does not use it. A bad argument, a missing theta, no report left in the period or no budget
   * left rejects with a `ReportError`.
   */
  async report(user: string, slot: number, value: unknown, theta?: number): Promise<string> {
    wellFormed("user", user);
    if (!Number.isInteger(slot) || slot < 0 || slot >= SLOTS) {
      throw new ReportError(`slot = ${slot}: must be an integer from 0 to 2^32 - 1`);
    }
    const group = await this.survey.group(user);
    return this.store.once(this.survey, user, slot, () => {
      const [step, code] = this.#perturb(group, value, theta);
      return encode(this.survey, { user, slot, group, theta: step, code });
    });
  }

  #perturb(group: number, value: unknown, theta: number | undefined): readonly [number, number] {
    if (group === RANGE) return [0, this.survey.perturbRange(value, this.#uniform)];
    if (theta === undefined) {
      const needs = group === NARROW ? "narrow report needs the published range"
        : "value report needs the published threshold";
      throw new ReportError(`theta: a ${needs}`);
    }
    if (group === NARROW) {
      return [theta, this.survey.perturbNarrow(value, theta, this.#uniform)];
    }
    return [theta, this.survey.perturbValue(value, theta, this.#uniform)];
  }
}

interface Report {
  readonly user: string;
  readonly slot: number;
  readonly group: number;
  readonly theta: number;
  readonly code: number;
}

function encode(survey: Survey, report: Report): string {
  const { user, slot, group, theta, code } = report;
  return JSON.stringify({
    schema: SCHEMA,
    definition: "local",
    epsilon: text(survey.epsilon),
    epsilon_user: text(multiply(survey.epsilon, rational(BigInt(survey.reports)))),
    period: survey.period,
    survey: survey.number,
    user, slot, group, theta, code,
  });
}

/**
 * The step that a record of the release topic tells devices, if it is one that does: that of the
 * threshold, and 8192 times the channel that is told with it.
 *
 * `record` is the JSON text or what was decoded from it; rows, manifests before the warm-up, those
 * of another survey and, where `slot` (seconds since 1970) is given, of a window that it does not
 * lie in tell nothing. In two rounds the narrow group is told a range in its place: `group` is that
 * of the user, `await survey.group(user)`.
 */
export function publishedThreshold(
  record: unknown, survey: Survey, slot?: number, group = VALUE,
): number | undefined {
  const body = asObject(typeof record === "string" ? decoded(record) : record);
  const said = asObject(body?.public);
  const [numbers, thetas] = [said?.survey, group === NARROW ? said?.range : said?.theta];
  if (!Array.isArray(numbers) || numbers.length !== 1 || numbers[0] !== survey.number) return;
  if (!Array.isArray(thetas) || thetas.length !== 1) return;
  const theta: unknown = thetas[0];
  if (slot !== undefined && !within(asObject(body?.window), slot)) return;
  const fits = typeof theta === "number" && Number.isInteger(theta)
    && theta >= 1 && theta <= survey.buckets;
  const told = survey.channel === "told" && group !== NARROW;
  const channels: unknown = told ? said?.channel : [0];
  if (!fits || !Array.isArray(channels) || channels.length !== 1) return;
  const channel: unknown = channels[0];
  const known = typeof channel === "number" && Number.isInteger(channel)
    && channel >= 0 && channel < CHANNELS;
  return known ? theta + channel * STEP : undefined;
}

function decoded(record: string): unknown {
  try {
    return JSON.parse(record);
  } catch {
    return undefined;
  }
}

function asObject(value: unknown): Record<string, unknown> | undefined {
  return typeof value === "object" && value !== null ? value as Record<string, unknown> : undefined;
}

/** Whether a time in seconds lies in a manifest's window. */
function within(window: Record<string, unknown> | undefined, slot: number): boolean {
  const [start, end] = [Date.parse(String(window?.start)), Date.parse(String(window?.end))];
  return start <= slot * 1000 && slot * 1000 < end; // NaN: no time, so false
}
