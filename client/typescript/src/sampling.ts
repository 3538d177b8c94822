/** Exact integers from the platform's randomness: no floats, no modulo bias. */

import { floor, multiply, rational, round, type Rational } from "./rational.ts";

/** A uniform integer in 0..n-1. */
export type Below = (n: bigint) => bigint;

/** Parts of a unit, to which `roundRandomly` brings its argument first. */
export const PARTS = 1n << 64n;

/** A uniform integer in 0..n-1, by rejection; how many attempts it takes depends on n alone. */
export function below(n: bigint): bigint {
  if (n < 1n) throw new RangeError(`n = ${n}: must be at least 1`);
  const bits = n === 1n ? 0 : (n - 1n).toString(2).length;
  for (;;) {
    const drawn = randomBits(bits);
    if (drawn < n) return drawn;
  }
}

function randomBits(bits: number): bigint {
  const bytes = crypto.getRandomValues(new Uint8Array(Math.ceil(bits / 8)));
  let drawn = 0n;
  for (const byte of bytes) drawn = (drawn << 8n) | BigInt(byte);
  return drawn >> BigInt(8 * bytes.length - bits);
}

/** An integer next to `x` whose mean is `x` to within 2^-65; one draw, whatever `x` is. */
export function roundRandomly(x: Rational, uniform: Below): bigint {
  const parts = round(multiply(x, rational(PARTS)));
  const whole = floor(rational(parts, PARTS));
  return uniform(PARTS) < parts - whole * PARTS ? whole + 1n : whole;
}
