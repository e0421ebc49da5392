// A resident specialist: a line of JSON in for each handoff, a line of JSON out.
// Only answers and heartbeats go to stdout; console.error writes to the attempt's log.
import { createInterface } from "node:readline";

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
let done = 0;

async function count(record) {
  const words = record.input.data.text.split(/\s+/).filter(Boolean);
  await new Promise((resolve) => setTimeout(resolve, 5)); // stands for a call to a service
  return { words: words.length, handoffs_before: done++ };
}

// Ends when the daemon lets this process go.
for await (const line of createInterface({ input: process.stdin })) {
  const { handoff_id, record } = JSON.parse(line);
  const beat = setInterval(() => say({ handoff_id, heartbeat: true }), 1000);
  try {
    say({ handoff_id, status: "complete", output: await count(record) });
  } catch (error) {
    say({ handoff_id, status: "failed", error: { message: String(error), retryable: false } });
  } finally {
    clearInterval(beat);
  }
}
