/** Exact rational numbers over bigint: nothing that decides a probability is a float. */

import { ReportError } from "./errors.ts";

/** A fraction in lowest terms; `den` is positive. */
export interface Rational {
  readonly num: bigint;
  readonly den: bigint;
}

const TEXT = /^[0-9]{1,400}(\/[0-9]{1,400})?$/; // 1e999999999 would take all memory

function gcd(a: bigint, b: bigint): bigint {
  let [x, y] = [a < 0n ? -a : a, b];
  while (y) [x, y] = [y, x % y];
  return x;
}

/** The fraction num / den. */
export function rational(num: bigint, den: bigint = 1n): Rational {
  if (den === 0n) throw new ReportError("a denominator is 0");
  const sign = den < 0n ? -1n : 1n;
  const common = gcd(num, den * sign) || 1n;
  return { num: (num * sign) / common, den: (den * sign) / common };
}

export const add = (a: Rational, b: Rational): Rational =>
  rational(a.num * b.den + b.num * a.den, a.den * b.den);
export const subtract = (a: Rational, b: Rational): Rational =>
  rational(a.num * b.den - b.num * a.den, a.den * b.den);
export const multiply = (a: Rational, b: Rational): Rational =>
  rational(a.num * b.num, a.den * b.den);
export const divide = (a: Rational, b: Rational): Rational =>
  rational(a.num * b.den, a.den * b.num);
/** Negative, zero or positive as a is below, equal to or above b. */
export const compare = (a: Rational, b: Rational): bigint => a.num * b.den - b.num * a.den;

/** The largest integer that is at most x. */
export function floor(x: Rational): bigint {
  const whole = x.num / x.den; // truncates towards zero
  return x.num < 0n && whole * x.den !== x.num ? whole - 1n : whole;
}

/** The nearest integer; the even one where two are. */
export function round(x: Rational): bigint {
  const low = floor(x);
  const twice = 2n * (x.num - low * x.den);
  if (twice !== x.den) return twice < x.den ? low : low + 1n;
  return low % 2n === 0n ? low : low + 1n;
}

/** "1/2" or "3": in lowest terms, without a denominator of 1. */
export const text = (x: Rational): string =>
  x.den === 1n ? `${x.num}` : `${x.num}/${x.den}`;

/** A fraction from texts such as "1/2" and "3". */
export function parseRational(name: string, value: unknown): Rational {
  if (typeof value !== "string" || !TEXT.test(value)) {
    throw new ReportError(`${name} = ${String(value).slice(0, 40)}: must be a text such as "1/2"`);
  }
  const [num, den] = value.split("/");
  if (den !== undefined && BigInt(den) === 0n) throw new ReportError(`${name}: a denominator is 0`);
  return rational(BigInt(num!), den === undefined ? 1n : BigInt(den));
}

/** Exactly the number that a double, a bigint or a fraction stands for; an error never shows it. */
export function exact(value: unknown): Rational {
  if (typeof value === "bigint") return rational(value);
  if (typeof value === "number" && Number.isFinite(value)) return fromDouble(value);
  if (isRational(value)) return rational(value.num, value.den);
  throw new ReportError("value: must be a finite number");
}

function isRational(value: unknown): value is Rational {
  if (typeof value !== "object" || value === null) return false;
  const { num, den } = value as Partial<Rational>;
  return typeof num === "bigint" && typeof den === "bigint" && den !== 0n;
}

/** The bits of a double: sign, 11 of the exponent, 52 of the significand. */
function fromDouble(value: number): Rational {
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, value);
  const word = bits.getBigUint64(0);
  const exponent = Number((word >> 52n) & 0x7ffn);
  const fraction = (word & 0xfffffffffffffn) | (exponent ? 1n << 52n : 0n);
  const power = (exponent || 1) - 1075;
  const size = power < 0 ? rational(fraction, 1n << BigInt(-power))
    : rational(fraction << BigInt(power));
  return word >> 63n ? rational(-size.num, size.den) : size;
}
