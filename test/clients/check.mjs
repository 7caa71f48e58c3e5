// Assertions and waiting, for all steps.
import assert from 'node:assert/strict';
export { assert };

// until polls a condition, because notifications come when they come.
export async function until(what, condition, ms = 30_000) {
  for (const end = Date.now() + ms; Date.now() < end;) {
    const value = condition();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`not seen within ${ms} ms: ${what}`);
}

export const textOf = (result) => result.content?.[0]?.text;

// rejects returns the error that a promise ends with.
export async function rejects(promise) {
  try {
    await promise;
  } catch (e) {
    return e;
  }
  throw new Error('no error came');
}
