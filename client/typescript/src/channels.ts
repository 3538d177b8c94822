/**
 * Exact local channels: integer weights whose ratio in any column cannot exceed e^epsilon.
 *
 * There are two weights only, `high` and `low`, and `high / low` is a rational number that was
 * rounded down from e^epsilon. Square Wave is by Li et al. (SIGMOD 2020), Piecewise and Hybrid by
 * Wang et al. (ICDE 2019), the two-point channel by Duchi, Jordan and Wainwright (JASA 2018).
 */

import {
  add, compare, divide, floor, multiply, rational, round, subtract, type Rational,
} from "./rational.ts";
import type { Below } from "./sampling.ts";

export const LOW = 1n << 24n;
const NO_PIECEWISE = rational(61n, 100n);
const ONE = rational(1n);

/** A multiple of 2^-bits that is at most e^x, and less than 2^(1-bits) below it (x ≥ 0). */
export function expBelow(x: Rational, bits: bigint = 128n): Rational {
  const rest = rational(1n, 1n << (bits + 2n));
  const twice = multiply(rational(2n), x);
  let [total, term] = [ONE, ONE];
  for (let n = 1n; compare(rational(n - 1n), twice) < 0n || compare(term, rest) > 0n; n++) {
    term = divide(multiply(term, x), rational(n));
    total = add(total, term);
  }
  return rational(floor(multiply(total, rational(1n << bits))), 1n << bits);
}

/** The largest integer weight that e^epsilon allows beside `LOW`. */
export const highWeight = (epsilon: Rational): bigint =>
  floor(multiply(expBelow(epsilon), rational(LOW)));

/** Input i makes the outputs i .. i+width-1 likely, all others unlikely. */
export class Window {
  readonly inputs: bigint;
  readonly width: bigint;
  readonly high: bigint;

  constructor(inputs: bigint, width: bigint, high: bigint) {
    this.inputs = inputs;
    this.width = width;
    this.high = high;
  }

  get outputs(): bigint {
    return this.inputs + this.width - 1n;
  }

  get total(): bigint {
    return this.width * this.high + (this.inputs - 1n) * LOW;
  }

  /** One output, exactly with probability weight / total. */
  draw(level: bigint, below: Below): bigint {
    const place = below(this.total);
    const inside = this.width * this.high;
    if (place < inside) return level + place / this.high;
    const rest = (place - inside) / LOW;
    return rest < level ? rest : rest + this.width;
  }
}

/** Input v is answered by ±C with mean v; outputs 0 and 1 stand for -C and +C. */
export class TwoPoint {
  readonly inputs: bigint;
  readonly high: bigint;
  readonly outputs = 2n;

  constructor(inputs: bigint, high: bigint) {
    this.inputs = inputs;
    this.high = high;
  }

  get total(): bigint {
    return (this.inputs - 1n) * (this.high + LOW);
  }

  draw(level: bigint, below: Below): bigint {
    const up = (this.inputs - 1n) * LOW + level * (this.high - LOW);
    return below(this.total) >= this.total - up ? 1n : 0n;
  }
}

/** Piecewise with probability `mix`, else two-point; the output says which of them spoke. */
export class Hybrid {
  readonly piecewise: Window;
  readonly twoPoint: TwoPoint;
  readonly mix: Rational;

  constructor(piecewise: Window, twoPoint: TwoPoint, mix: Rational) {
    this.piecewise = piecewise;
    this.twoPoint = twoPoint;
    this.mix = mix;
  }

  get outputs(): bigint {
    return this.piecewise.outputs + this.twoPoint.outputs;
  }

  /** The same parts, of which Piecewise alone speaks (1) or the two-point channel alone (0). */
  alone(mix: 0n | 1n): Hybrid {
    return new Hybrid(this.piecewise, this.twoPoint, rational(mix));
  }

  draw(level: bigint, below: Below): bigint {
    if (below(this.mix.den) < this.mix.num) return this.piecewise.draw(level, below);
    return this.piecewise.outputs + this.twoPoint.draw(level, below);
  }
}

/** Square Wave on `inputs` buckets of [0, 1], with the half-window of the paper's equation 5. */
export function squareWave(epsilon: Rational, inputs: bigint): Window {
  const e = expBelow(epsilon);
  const over = add(subtract(multiply(epsilon, e), e), ONE);
  const under = multiply(multiply(rational(2n), e), subtract(subtract(e, ONE), epsilon));
  const half = floor(multiply(divide(over, under), rational(inputs)));
  return new Window(inputs, 2n * half + 1n, highWeight(epsilon));
}

/** Piecewise on `inputs` levels of [-1, 1]: width / (inputs - 1) is near e^(-epsilon/2). */
export function piecewise(epsilon: Rational, inputs: bigint): Window {
  const width = round(divide(rational(inputs - 1n), expBelow(divide(epsilon, rational(2n)))));
  return new Window(inputs, width > 1n ? width : 1n, highWeight(epsilon));
}

/** The Hybrid channel: mixing probability 1 - e^(-epsilon/2) above 0.61, else zero. */
export function hybrid(epsilon: Rational, inputs: bigint): Hybrid {
  let mix = rational(0n);
  if (compare(epsilon, NO_PIECEWISE) > 0n) {
    const two = subtract(ONE, divide(ONE, expBelow(divide(epsilon, rational(2n)))));
    mix = rational(round(multiply(two, rational(65536n))), 65536n);
  }
  return new Hybrid(piecewise(epsilon, inputs), new TwoPoint(inputs, highWeight(epsilon)), mix);
}
