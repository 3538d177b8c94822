/** A keeper without a disk, for tests alone. */

import type { Change, Keeper } from "../src/index.ts";

export class MemoryKeeper implements Keeper {
  kept: string | undefined;

  async exclusively<T>(change: (kept: string | undefined) => Change<T>): Promise<T> {
    const { keep, result } = change(this.kept);
    if (keep !== undefined) this.kept = keep;
    return result;
  }
}
