/** A report cannot be made: a parameter, the value or the budget does not allow it. */
export class ReportError extends Error {
  override name = "ReportError";
}
