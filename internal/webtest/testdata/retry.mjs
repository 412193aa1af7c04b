// The helper sends again what a server cannot take now, not before it is asked to:
// HELIX_JS is the helper's file.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

const source = await readFile(process.env.HELIX_JS, "utf8");
const { events, HelixError } = await import("data:text/javascript," + encodeURIComponent(source));

const end = 'event: end\ndata: {"status":"completed"}\n\n';

// read reads a stream of a server that answers in this order, and says when it was asked.
async function read(...answers) {
  const asked = [];
  const fetch = async () => {
    asked.push(Date.now());
    return answers.shift()();
  };
  const seen = [];
  for await (const event of events({ sessionId: "s", fetch })) seen.push(event.kind);
  return { asked, seen };
}

const refused = (status, body, headers) => () => new Response(JSON.stringify(body), { status, headers });
const done = () => new Response(end);

for (const [name, answer] of Object.entries({
  "429": refused(429, { error: "slow down", code: "framework_rate_limited" }, { "retry-after": "1" }),
  "503": refused(503, { error: "later", code: "state_unavailable", retryable: true }, { "retry-after": "1" }),
  "what may be tried again": refused(409, { error: "busy", code: "state_stale", retryable: true }, { "retry-after": "1" }),
})) {
  const { asked, seen } = await read(answer, done);
  assert.deepEqual(seen, ["end"]);
  assert.ok(asked[1] - asked[0] >= 1000, `${name}: asked again after ${asked[1] - asked[0]} ms`);
  console.log("ok", name);
}
await assert.rejects(read(refused(404, { error: "none", code: "state_not_found" })), (error) => error instanceof HelixError && error.status === 404);
console.log("ok 404");
const slow = refused(408, { error: "the body did not arrive in time", code: "framework_body_timeout", retryable: true });
assert.deepEqual((await read(slow, slow, done)).seen, ["end"]);
await assert.rejects(read(slow, slow, slow, done), (error) => error instanceof HelixError && error.status === 408);
console.log("ok 408");
