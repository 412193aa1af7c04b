// What the packages make of chunks. Each line of the input is a story: its name, its chunks, and the message that
// they must come to.
import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { DefaultChatTransport, readUIMessageStream } from "ai";

/** plain leaves out what says nothing: fields that are not set, the ids of reasoning, and inputs as text. */
function plain(message) {
  const { metadata, ...rest } = JSON.parse(JSON.stringify(message));
  return {
    ...rest,
    metadata,
    parts: rest.parts.map(({ rawInput: _raw, ...part }) => {
      if (part.type === "reasoning") delete part.id;
      return part;
    }),
  };
}

async function read(chunks) {
  const transport = new DefaultChatTransport({ api: "http://127.0.0.1/" });
  const body = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("") + "data: [DONE]\n\n";
  const stream = transport.processResponseStream(new Response(body).body);
  let last;
  const errors = [];
  for await (const message of readUIMessageStream({ stream, onError: (error) => errors.push(error) })) last = message;
  return { last, errors };
}

let failed = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { name, chunks, want } = JSON.parse(line);
  try {
    const told = chunks.filter((chunk) => chunk.type === "error").map((chunk) => chunk.errorText);
    const { last, errors } = await read(chunks);
    assert.deepEqual(errors.map((error) => error.message), told);
    assert.deepEqual(plain(last), plain(want));
    console.log("ok " + name);
  } catch (error) {
    failed++;
    console.log("not ok " + name);
    console.error(name, error);
  }
}
process.exit(failed === 0 ? 0 : 1);
