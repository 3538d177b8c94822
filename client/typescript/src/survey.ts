/** The public parameters that a device and its aggregator share. */

import { hybrid, squareWave, type Hybrid, type Window } from "./channels.ts";
import { ReportError } from "./errors.ts";
import {
  compare, divide, exact, floor, multiply, parseRational, rational, text, type Rational,
} from "./rational.ts";
import { below, roundRandomly, type Below } from "./sampling.ts";

export const SLOTS = 2 ** 32;
/** The group that reports by Square Wave, so that the aggregator learns the range. */
export const RANGE = 1;
/** The group that reports by Hybrid, or the channel that is told, within [0, theta]. */
export const VALUE = 2;
/** The group of a survey in two rounds that reports by Square Wave within the range found. */
export const NARROW = 3;
/** Powers of two that the scale of a survey in two rounds spans. */
const OCTAVES = 16;
/** Channels of a value report: Hybrid, Piecewise, two-point. */
export const CHANNELS = 3;
/** A step above all thresholds: what is told is theta + channel * STEP. */
export const STEP = 2 ** 13;

const [LEAST, MOST] = [rational(1n, 1000n), rational(16n)];
const ZERO = rational(0n);
const ONE = rational(1n);
const DEFAULTS = {
  reports: 1, buckets: 512, levels: 512, period: 0, rounds: 1, channel: "hybrid",
};
const NAMES = ["bound", "buckets", "epsilon", "levels", "period", "reports", "salt", "share"];
const ALL = [...NAMES, "rounds", "channel"];
const LIMITS: readonly (readonly [string, number, number])[] = [
  ["reports", 1, SLOTS], ["buckets", 2, 4096], ["levels", 2, 4096], ["period", 0, SLOTS],
  ["rounds", 1, 2],
];

type Fields = Record<string, unknown>;

/**
 * One question asked of every user, and how much each answer may say.
 *
 * Each report is epsilon-locally differentially private in its value, a user's reports of one
 * period together `reports * epsilon`. That somebody reported, and when, is not hidden.
 */
export class Survey {
  readonly epsilon: Rational;
  readonly bound: Rational;
  readonly share: Rational;
  readonly salt: string;
  readonly reports: number;
  readonly buckets: number;
  readonly levels: number;
  readonly period: number;
  readonly rounds: number;
  /** "hybrid", or "told": value reports are made by the channel that is published with theta. */
  readonly channel: string;
  /** Canonical text: what the digest is taken of. */
  readonly json: string;
  /** Sixteen hexadecimal digits that identify every parameter. */
  readonly digest: string;
  /** The first 48 bits of the digest: what a report says of its survey, exact in a double. */
  readonly number: number;
  readonly squareWave: Window;
  readonly hybrid: Hybrid;

  private constructor(fields: Fields, json: string, digest: string) {
    this.epsilon = parseRational("epsilon", fields.epsilon);
    this.bound = parseRational("bound", fields.bound);
    this.share = parseRational("share", fields.share);
    this.salt = fields.salt as string;
    this.reports = fields.reports as number;
    this.buckets = fields.buckets as number;
    this.levels = fields.levels as number;
    this.period = fields.period as number;
    this.rounds = fields.rounds as number;
    this.channel = fields.channel as string;
    this.json = json;
    this.digest = digest;
    this.number = Number.parseInt(digest.slice(0, 12), 16);
    this.squareWave = squareWave(this.epsilon, BigInt(this.buckets));
    this.hybrid = hybrid(this.epsilon, BigInt(this.levels) + 1n);
  }

  /** The survey that the aggregator's owner published; throws a `ReportError` if it is none. */
  static async fromJson(published: string): Promise<Survey> {
    let plain: unknown;
    try {
      plain = JSON.parse(published);
    } catch {
      throw new ReportError("survey: is not JSON");
    }
    const fields = checked(plain);
    const json = canonical(fields);
    const digest = hex(await sha256(json)).slice(0, 16);
    return new Survey(fields, json, digest);
  }

  /** `RANGE`, `VALUE` or, in two rounds, `NARROW`, from the salt and the user alone. */
  async group(user: string): Promise<number> {
    wellFormed("user", user);
    const hash = await sha256(`${[...this.salt].length}:${this.salt}${user}`);
    const place = new DataView(hash.buffer).getBigUint64(0);
    const end = this.share.num << 64n;
    if (place * this.share.den >= end) return VALUE;
    return place * this.share.den * BigInt(this.rounds) < end ? RANGE : NARROW;
  }

  /** First slot and end of the period that a slot lies in. */
  periodOf(slot: number): readonly [number, number] {
    if (!this.period) return [0, SLOTS];
    const first = slot - (slot % this.period);
    return [first, first + this.period];
  }

  /** The threshold's own step and the channel that a step stands for. */
  saidBy(step: number): readonly [number, number] {
    const channels = this.channel === "told" ? CHANNELS : 1;
    const [theta, channel] = [step % STEP, Math.floor(step / STEP)];
    const fits = Number.isInteger(step) && theta >= 1 && theta <= this.buckets
      && channel >= 0 && channel < channels;
    if (!fits) {
      const more = channels > 1 ? ` + ${STEP} * channel (0, 1 or 2)` : "";
      throw new ReportError(`theta = ${step}: must be an integer from 1 to ${this.buckets}${more}`);
    }
    return [theta, channel];
  }

  /** The threshold of a step in the user's own units; a channel told with it does not matter. */
  threshold(step: number): Rational {
    const [theta] = this.saidBy(step);
    if (this.rounds === 1) {
      return multiply(this.bound, rational(BigInt(theta), BigInt(this.buckets)));
    }
    const steps = this.buckets / OCTAVES;
    const octave = Math.floor((theta - 1) / steps);
    const up = BigInt(steps + ((theta - 1) % steps) + 1);
    return multiply(this.bound, rational(up, BigInt(steps) << BigInt(OCTAVES - octave)));
  }

  /** A Square Wave output for one value, clipped to [0, B] first. */
  perturbRange(value: unknown, uniform: Below = below): number {
    const share = divide(clipped(value, this.bound), this.bound);
    const equal = this.rounds === 1;
    return this.#wave(equal ? floor(multiply(share, this.#buckets())) : this.#scaled(share), uniform);
  }

  /** A Square Wave output for one value, clipped to [0, theta] first, in equal buckets. */
  perturbNarrow(value: unknown, theta: number, uniform: Below = below): number {
    const top = this.threshold(theta);
    if (theta > this.buckets) throw new ReportError(`theta = ${theta}: a range has no channel`);
    return this.#wave(floor(multiply(divide(clipped(value, top), top), this.#buckets())), uniform);
  }

  #buckets(): Rational {
    return rational(BigInt(this.buckets));
  }

  #wave(bucket: bigint, uniform: Below): number {
    const last = BigInt(this.buckets) - 1n;
    return Number(this.squareWave.draw(bucket < last ? bucket : last, uniform));
  }

  /** The bucket of a share of B on the scale of octaves; what is below all is in the first. */
  #scaled(share: Rational): bigint {
    const steps = BigInt(this.buckets / OCTAVES);
    const raised = (octave: number): Rational =>
      multiply(share, rational(1n << BigInt(OCTAVES - octave)));
    let octave = OCTAVES - 1;
    while (octave > 0 && compare(raised(octave), ONE) < 0n) octave -= 1;
    const within = floor(multiply(raised(octave), rational(steps))) - steps;
    return BigInt(octave) * steps + (within > 0n ? within : 0n);
  }

  /** An output of the told channel, else of Hybrid, for one value clipped to [0, theta]. */
  perturbValue(value: unknown, theta: number, uniform: Below = below): number {
    const [top, [, channel]] = [this.threshold(theta), this.saidBy(theta)];
    const share = divide(clipped(value, top), top);
    const level = roundRandomly(multiply(share, rational(BigInt(this.levels))), uniform);
    const made = channel ? this.hybrid.alone(channel === 1 ? 1n : 0n) : this.hybrid;
    return Number(made.draw(level, uniform));
  }
}

/** A text without half of a character, which has no UTF-8 and so no hash. */
export function wellFormed(name: string, value: unknown): string {
  if (typeof value !== "string" || /\p{Surrogate}/u.test(value)) {
    throw new ReportError(`${name}: must be a text of whole characters`);
  }
  return value;
}

function clipped(value: unknown, top: Rational): Rational {
  const given = exact(value);
  if (compare(given, ZERO) < 0n) return ZERO;
  return compare(given, top) > 0n ? top : given;
}

function checked(plain: unknown): Fields {
  if (typeof plain !== "object" || plain === null || Array.isArray(plain)) {
    throw new ReportError("survey: must be a JSON object");
  }
  const fields: Fields = { ...DEFAULTS, ...plain };
  const unknown = Object.keys(fields).filter((name) => !ALL.includes(name));
  if (unknown.length) throw new ReportError(`survey: ${unknown[0]} is unknown`);
  wellFormed("salt", fields.salt);
  const [epsilon, bound, share] = ["epsilon", "bound", "share"].map(
    (name) => parseRational(name, fields[name]),
  ) as [Rational, Rational, Rational];
  const inside = compare(epsilon, LEAST) >= 0n && compare(epsilon, MOST) <= 0n;
  require("epsilon", fields, inside, "between 1/1000 and 16");
  require("bound", fields, bound.num > 0n, "positive");
  require("share", fields, share.num > 0n && compare(share, ONE) < 0n, "between 0 and 1");
  for (const [name, least, most] of LIMITS) {
    const number = fields[name];
    const fits = typeof number === "number" && Number.isInteger(number)
      && number >= least && number <= most;
    require(name, fields, fits, `an integer between ${least} and ${most}`);
  }
  const whole = fields.rounds === 1 || (fields.buckets as number) % OCTAVES === 0;
  require("buckets", fields, whole, `a multiple of ${OCTAVES} in two rounds`);
  const channels: readonly unknown[] = ["hybrid", "told"];
  require("channel", fields, channels.includes(fields.channel), '"hybrid" or "told"');
  return { ...fields, epsilon: text(epsilon), bound: text(bound), share: text(share) };
}

function require(name: string, fields: Fields, holds: boolean, rule: string): void {
  if (!holds) throw new ReportError(`${name} = ${String(fields[name])}: must be ${rule}`);
}

/** JSON with sorted names, without spaces, a single round or Hybrid; ASCII, the rest is escaped. */
function canonical(fields: Fields): string {
  const usual: Fields = { rounds: 1, channel: "hybrid" };
  const named = ALL.filter((name) => fields[name] !== usual[name]).toSorted();
  const sorted = Object.fromEntries(named.map((name) => [name, fields[name]]));
  return JSON.stringify(sorted).replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

async function sha256(message: string): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new TextEncoder().encode(message);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

const hex = (bytes: Uint8Array): string =>
  [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
