// Ends a task, so that what waits meanwhile, such as a key that was pressed, comes before the next step.

export function turn() {
  return globalThis.scheduler?.yield ? globalThis.scheduler.yield() : new Promise((go) => { setTimeout(go); });
}
