/** Local differential privacy on the user's own device, with nothing but the platform. */

export { ReportError } from "./errors.ts";
export { Client, publishedThreshold } from "./report.ts";
export { below, type Below } from "./sampling.ts";
export { ReportStore, type Budget, type Change, type Keeper } from "./store.ts";
export { NARROW, RANGE, SLOTS, Survey, VALUE } from "./survey.ts";
export { rational, type Rational } from "./rational.ts";
