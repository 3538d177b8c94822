/** A keeper in a folder, for Node: durable, whole after a crash, safe for several processes. */

import {
  closeSync, fsyncSync, linkSync, mkdirSync, openSync, readFileSync, readdirSync, unlinkSync,
  writeFileSync,
} from "node:fs";
import { randomUUID } from "node:crypto";
import { join } from "node:path";

import type { Change, Keeper } from "./store.ts";

const NAME = /^kept-([0-9]{12})\.json$/;

/**
 * Keeps the text as the file with the highest number; a change is a new file.
 *
 * A hard link creates a file whole or not at all, and fails where the number is taken already: then
 * somebody else was first, and the change is made anew from what he kept. Numbers are looked at
 * once more afterwards, since a slow process may have taken one that was given up meanwhile; what
 * it made is then found in the newest file or, as nothing of it has left, made anew.
 */
export class FolderKeeper implements Keeper {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
    mkdirSync(folder, { recursive: true });
  }

  async exclusively<T>(change: (kept: string | undefined) => Change<T>): Promise<T> {
    for (;;) {
      const newest = this.#newest();
      const kept = newest ? this.#read(newest) : undefined;
      if (newest && kept === undefined) continue; // given up meanwhile: there is a newer one
      const { keep, result } = change(kept);
      if (keep === undefined) return result;
      if (this.#create(newest + 1, keep) && this.#newest() === newest + 1) {
        this.#clear(newest);
        return result;
      }
    }
  }

  #numbers(): number[] {
    return readdirSync(this.#folder).flatMap((name) => {
      const found = NAME.exec(name);
      return found ? [Number(found[1])] : [];
    });
  }

  #newest(): number {
    return Math.max(0, ...this.#numbers());
  }

  #path(number: number): string {
    return join(this.#folder, `kept-${String(number).padStart(12, "0")}.json`);
  }

  #read(number: number): string | undefined {
    try {
      return readFileSync(this.#path(number), "utf8");
    } catch (error) {
      if (isCode(error, "ENOENT")) return undefined;
      throw error;
    }
  }

  /** Whether the file was created: on disk, its name included, when this returns. */
  #create(number: number, text: string): boolean {
    const draft = join(this.#folder, `draft-${randomUUID()}`);
    try {
      synced(draft, "wx", (file) => writeFileSync(file, text));
      linkSync(draft, this.#path(number));
    } catch (error) {
      if (isCode(error, "EEXIST")) return false;
      throw error;
    } finally {
      removed(draft);
    }
    synced(this.#folder, "r", () => undefined);
    return true;
  }

  /** Removes all but the two newest: a listing may miss a file that comes while it is made. */
  #clear(last: number): void {
    for (const number of this.#numbers()) {
      if (number < last) removed(this.#path(number));
    }
  }
}

function synced(path: string, flags: string, write: (file: number) => unknown): void {
  const file = openSync(path, flags, 0o600);
  try {
    write(file);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

function removed(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (!isCode(error, "ENOENT")) throw error;
  }
}

const isCode = (error: unknown, code: string): boolean =>
  error instanceof Error && "code" in error && error.code === code;
