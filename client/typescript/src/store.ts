/**
 * Reports that have been made, kept so that a retry sends the same bytes; and what they cost.
 *
 * Fresh noise on every attempt would average out, so a report is written down, durably, before its
 * first byte leaves the device. What all surveys together may draw from a device is for its owner
 * to say, and is kept in the same place.
 */

import { ReportError } from "./errors.ts";
import { add, compare, multiply, parseRational, rational, subtract, text, type Rational } from "./rational.ts";
import type { Survey } from "./survey.ts";

const DAY = 86_400;
const ZERO = rational(0n);
const FORMAT = "hush.store/1";

/** The budget of a device for all surveys together. */
export interface Budget {
  /** Sum of epsilon over all reports, as a text such as "20" or "1/2". */
  readonly epsilon: string;
  /** Length of the period with that sum, by the device's own clock; 0: all time. */
  readonly days: number;
}

/** A change of the kept text: what to keep from now on (the old text if missing), and a result. */
export interface Change<T> {
  readonly keep?: string;
  readonly result: T;
}

/**
 * One durable text of a device.
 *
 * `exclusively` gives `change` the text that was kept last (undefined: never any), keeps what it
 * returns, and resolves once that is durable. No other change of the same text, in this process or
 * another, may come between reading and keeping; if that cannot be had it rejects. It may call
 * `change` several times: only the result that was kept counts.
 */
export interface Keeper {
  exclusively<T>(change: (kept: string | undefined) => Change<T>): Promise<T>;
}

interface Made {
  survey: string;
  user: string;
  slot: number;
  epsilon: string;
  payload: string;
  made: number;
}

interface Kept {
  format: string;
  budget: Budget;
  reports: Made[];
}

/** The reports of one person's device. They cost at most its budget, whatever was asked of it. */
export class ReportStore {
  readonly #keeper: Keeper;
  readonly #clock: () => number;

  private constructor(keeper: Keeper, clock: () => number) {
    this.#keeper = keeper;
    this.#clock = clock;
  }

  /**
   * Opens what a keeper holds.
   *
   * A new one needs a budget and keeps it; later it may be left out, and another one is refused.
   * `clock` is the device's time in seconds; what has been stored never lets it go back.
   */
  static async open(
    keeper: Keeper, budget?: Budget, clock: () => number = () => Date.now() / 1000,
  ): Promise<ReportStore> {
    const given = budget && checked(budget);
    await keeper.exclusively((text) => {
      if (text === undefined) {
        if (!given) throw new ReportError("budget: a new store must be told what it may spend");
        return { keep: written({ format: FORMAT, budget: given, reports: [] }), result: null };
      }
      const kept = read(text).budget;
      if (given && (given.epsilon !== kept.epsilon || given.days !== kept.days)) {
        throw new ReportError(`budget = ${said(given)}: this store's is ${said(kept)}`);
      }
      return { result: null };
    });
    return new ReportStore(keeper, clock);
  }

  /** Gives the device another budget: its owner's decision, never a survey's. */
  async change(budget: Budget): Promise<void> {
    const given = checked(budget);
    await this.#change((kept) => ({ keep: { ...kept, budget: given }, result: null }));
  }

  /** The stored report of this slot, or else the one that `make` returns, stored first. */
  async once(survey: Survey, user: string, slot: number, make: () => string): Promise<string> {
    return this.#change((kept) => {
      const known = kept.reports.find(
        (one) => one.survey === survey.digest && one.user === user && one.slot === slot,
      );
      if (known) return { result: known.payload };
      const now = this.#clock();
      refuse(kept, survey, user, slot, now);
      const report = {
        survey: survey.digest, user, slot, epsilon: text(survey.epsilon),
        payload: make(), made: time(kept, now),
      };
      return { keep: { ...kept, reports: [...kept.reports, report] }, result: report.payload };
    });
  }

  /** The budget that the device has left now. */
  async left(): Promise<string> {
    const now = this.#clock();
    return this.#change((kept) => {
      const rest = subtract(parseRational("budget", kept.budget.epsilon), cost(kept, now));
      return { result: text(rest.num > 0n ? rest : ZERO) };
    });
  }

  async #change<T>(change: (kept: Kept) => { keep?: Kept; result: T }): Promise<T> {
    return this.#keeper.exclusively((text) => {
      if (text === undefined) throw new ReportError("store: what was kept is gone");
      const { keep, result } = change(read(text));
      return keep ? { keep: written(keep), result } : { result };
    });
  }
}

function refuse(kept: Kept, survey: Survey, user: string, slot: number, now: number): void {
  const [first, end] = survey.periodOf(slot);
  const made = kept.reports.filter(
    (one) => one.survey === survey.digest && one.user === user
      && one.slot >= first && one.slot < end,
  ).length;
  if (made >= survey.reports) {
    throw new ReportError(`reports = ${survey.reports}: this user has made them all`);
  }
  const spent = cost(kept, now);
  const budget = parseRational("budget", kept.budget.epsilon);
  if (compare(add(spent, survey.epsilon), budget) > 0n) {
    throw new ReportError(
      `budget = ${said(kept.budget)}: ${text(spent)} is spent, `
      + `this report would cost ε = ${text(survey.epsilon)}`,
    );
  }
}

/** The device's time; not before the newest report, whatever the clock was set to. */
function time(kept: Kept, now: number): number {
  const whole = Math.floor(now);
  // Every comparison with NaN is false, so all that was spent would count as long ago.
  if (!Number.isSafeInteger(whole)) throw new ReportError(`clock = ${now}: must be a time in seconds`);
  return kept.reports.reduce((newest, one) => Math.max(newest, one.made), whole);
}

function cost(kept: Kept, now: number): Rational {
  const { days } = kept.budget;
  const since = days ? time(kept, now) - days * DAY : -Infinity;
  const costs = new Map<string, bigint>();
  for (const one of kept.reports) {
    if (one.made >= since) costs.set(one.epsilon, (costs.get(one.epsilon) ?? 0n) + 1n);
  }
  return [...costs].reduce(
    (sum, [each, number]) => add(sum, multiply(parseRational("epsilon", each), rational(number))),
    ZERO,
  );
}

function checked(budget: Budget): Budget {
  const epsilon = parseRational("budget: epsilon", budget.epsilon);
  if (epsilon.num <= 0n) throw new ReportError(`budget: epsilon = ${budget.epsilon}: must be positive`);
  if (!Number.isSafeInteger(budget.days) || budget.days < 0) {
    throw new ReportError(`budget: days = ${budget.days}: must be a whole number, 0 for ever`);
  }
  return { epsilon: text(epsilon), days: budget.days };
}

const said = (budget: Budget): string =>
  `ε = ${budget.epsilon} ${budget.days ? `in ${budget.days} days` : "for ever"}`;

const written = (kept: Kept): string => JSON.stringify(kept);

/** Whether a report has all that its cost depends on. */
const complete = (one: Partial<Made> | null): boolean =>
  typeof one?.epsilon === "string" && typeof one.payload === "string"
  && Number.isSafeInteger(one.slot) && Number.isSafeInteger(one.made);

/** What was kept. Anything else than a whole store is refused: a budget must not begin anew. */
function read(text: string): Kept {
  let kept: Partial<Kept> | null;
  try {
    kept = JSON.parse(text) as Partial<Kept> | null;
  } catch {
    throw new ReportError("store: what was kept is damaged");
  }
  if (kept?.format !== FORMAT || !kept.budget || !Array.isArray(kept.reports)
    || !kept.reports.every(complete)) {
    throw new ReportError("store: what was kept is damaged, or of another version");
  }
  return kept as Kept;
}
