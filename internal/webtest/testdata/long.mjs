// A conversation of 500 messages, which the client of the packages posts whole with every message: HELIX_URL. AI_VERSION is
// the major version of the packages.
import assert from "node:assert/strict";
import { AbstractChat, DefaultChatTransport } from "ai";

const url = process.env.HELIX_URL;
const version = process.env.AI_VERSION;
const source = "long";
const id = `${source}-${version}`;

/** Chat is the chat of the packages, with its state in plain fields instead of a page's. */
class Chat extends AbstractChat {
  constructor({ messages, ...init }) {
    super({
      ...init,
      state: {
        status: "ready",
        error: undefined,
        messages,
        pushMessage(message) {
          this.messages = this.messages.concat(message);
        },
        popMessage() {
          this.messages = this.messages.slice(0, -1);
        },
        replaceMessage(index, message) {
          this.messages = this.messages.with(index, this.snapshot(message));
        },
        snapshot: (value) => structuredClone(value),
      },
    });
  }
}

async function read() {
  const response = await fetch(`${url}/chat/${id}/messages?sdk=${version}`);
  assert.equal(response.status, 200);
  return response.json();
}

/** turn has a turn of the source over the API, so that the conversation is long soon. */
async function turn(text) {
  const started = await fetch(url + "/start", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ sessionId: source, agentType: "desk", message: text }),
  });
  assert.equal(started.status, 200, await started.clone().text());
  const stream = await fetch(`${url}/sse?sessionId=${source}&run=${(await started.json()).runId}`);
  assert.match(await stream.text(), /event: end/);
}

const words = (message) =>
  message.parts
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("");

// The conversation takes most of the time. Whoever comes first has it.
if ((await fetch(`${url}/status?sessionId=${source}`)).status === 404) {
  for (let i = 0; i < 249; i++) await turn(`${i}: ${"long ago ".repeat(100)}`);
}
const branched = await fetch(`${url}/sessions/${source}/branch`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ sessionId: id }),
});
assert.equal(branched.status, 200, await branched.clone().text());
const { messages } = await read();
assert.equal(messages.length, 498);

let posted = 0;
const errors = [];
const chat = new Chat({
  id,
  messages,
  transport: new DefaultChatTransport({
    api: url + "/chat",
    headers: { "x-helix-ai-sdk": version },
    fetch: (address, init) => {
      posted = JSON.parse(init.body).messages.length;
      return fetch(address, init);
    },
  }),
  onError: (error) => errors.push(error),
});

await chat.sendMessage({ text: "hello" });
assert.deepEqual(errors, []);
assert.equal(posted, 499);
assert.equal(words(chat.messages.at(-1)), "Hello, how are you?");
console.log(`ok a message after ${posted - 1} others, with AI SDK ${version}`);

await chat.sendMessage({ text: "where" });
const call = chat.messages.at(-1).parts.find((part) => part.toolCallId !== undefined);
await (chat.addToolOutput ?? chat.addToolResult).call(chat, { tool: "locate", toolCallId: call.toolCallId, output: { lat: 47 } });
await chat.sendMessage();
assert.deepEqual(errors, []);
assert.equal(posted, 502);
assert.match(words(chat.messages.at(-1)), /result \{"lat":47\}/);
console.log(`ok an answer after ${posted - 1} others, with AI SDK ${version}`);

await chat.regenerate();
assert.deepEqual(errors, []);
assert.equal(posted, 501);
console.log(`ok a reply anew after ${posted - 1} others, with AI SDK ${version}`);

const after = (await read()).messages;
assert.deepEqual(
  after.map((message) => message.id),
  chat.messages.map((message) => message.id),
);
process.exit(0);
