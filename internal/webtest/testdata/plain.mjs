// What is beneath useChat, as it comes, against a server: HELIX_URL. Nothing is configured but
// the address, whichever major version of the package this is: AI_VERSION.
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import assert from "node:assert/strict";
import { createInterface } from "node:readline";

const url = process.env.HELIX_URL;
const version = process.env.AI_VERSION;
const story = process.env.HELIX_STORY;
const stdin = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Chat keeps its messages in memory; useChat keeps them in React's. */
class Chat extends AbstractChat {
  constructor({ messages, ...init }) {
    super({
      ...init,
      state: {
        messages,
        status: "ready",
        error: undefined,
        pushMessage(message) {
          this.messages = [...this.messages, message];
        },
        popMessage() {
          this.messages = this.messages.slice(0, -1);
        },
        replaceMessage(at, message) {
          this.messages = this.messages.with(at, structuredClone(message));
        },
        snapshot: (value) => structuredClone(value),
      },
    });
  }
}

/** page opens a chat, as a page that was opened: it loads the messages and resumes. */
async function page(id, between = async () => {}) {
  const response = await fetch(`${url}/chat/${id}/messages`);
  const messages = response.ok ? (await response.json()).messages : [];
  await between();
  const chat = new Chat({
    id,
    messages,
    transport: new DefaultChatTransport({ api: url + "/chat" }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
  });
  const state = { chat };
  void chat.resumeStream(); // as useChat does with resume: true
  const last = () => state.chat.messages.at(-1);
  return Object.assign(state, {
    output: (answer) => (state.chat.addToolOutput ?? state.chat.addToolResult)(answer),
    parts: (type) => last()?.parts.filter((part) => part.type === type) ?? [],
    tools: (name) => last()?.parts.filter((part) => part.toolName === name) ?? [],
    text: () =>
      (last()?.role === "assistant" ? last().parts : [])
        .filter((part) => part.type === "text")
        .map((part) => part.text)
        .join(""),
  });
}

async function until(condition, label, why) {
  const end = Date.now() + 30_000;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`waited in vain: ${label} ${why?.() ?? ""}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function server(word, answer) {
  process.stdout.write(word + "\n");
  const { value } = await stdin.next();
  assert.equal(value, answer);
}

const words = (p) => p.text().split(" ").length;
const explain = (p) => () => JSON.stringify([p.chat.messages, String(p.chat.error)]);

const cases = {
  async text(id) {
    const p = await page(id);
    await p.chat.sendMessage({ text: "hello" });
    await until(() => p.text() === "Hello, how are you?", "the reply", explain(p));
    assert.equal(p.chat.error, undefined);
  },

  async "tools of the server and of the client"(id) {
    const p = await page(id);
    await p.chat.sendMessage({ text: "weather" });
    await until(() => p.tools("weather")[1]?.state === "output-error", "the tools", explain(p));
    assert.equal(p.tools("weather")[0].output, "sun in Rome");
    await p.chat.sendMessage({ text: "where" });
    await until(() => p.tools("locate")[0]?.state === "input-available" && p.chat.status === "ready", "the call", explain(p));
    void p.output({ tool: "locate", toolCallId: p.tools("locate")[0].toolCallId, output: { lat: 47 } });
    await until(() => p.text() === 'So: result {"lat":47}', "the answer was sent", explain(p));
  },

  async "an approval granted and one denied, after a reload"(id) {
    let p = await page(id);
    await p.chat.sendMessage({ text: "delete" });
    await until(() => p.parts("data-approval").length === 2 && p.chat.status === "ready", "the approvals", explain(p));
    p = await page(id);
    await until(() => p.chat.status === "ready", "nothing runs", explain(p));
    for (const [at, { data }] of p.parts("data-approval").entries()) {
      assert.equal(data.state, "requested");
      void p.output({
        tool: data.toolName, toolCallId: data.toolCallId, output: { approvalId: data.approvalId, approved: at === 0, reason: "so" },
      });
    }
    await until(() => p.text().startsWith("So:"), "the answers were sent", explain(p));
    const [first, second] = p.tools("delete");
    assert.deepEqual([first.state, first.output], ["output-available", "deleted 1"]);
    assert.equal(second.state, "output-error");
    assert.equal(p.chat.messages.length, 2);
  },

  async "questions, one of them as an approval"(id) {
    let p = await page(id);
    await p.chat.sendMessage({ text: "ask yes or no" });
    await until(() => p.parts("data-approval").length === 1 && p.chat.status === "ready", "the question", explain(p));
    p = await page(id);
    await until(() => p.chat.status === "ready", "nothing runs", explain(p));
    const [{ data }] = p.parts("data-approval");
    assert.equal(p.parts("data-question")[0].data.questionId, data.approvalId);
    void p.output({ tool: data.toolName, toolCallId: data.toolCallId, output: { approvalId: data.approvalId, approved: true } });
    const said = 'So: result "{\\"sure\\":true} false "';
    await until(() => p.text() === said && p.chat.status === "ready", "the answer was sent", explain(p));
    await p.chat.sendMessage({ text: "ask a size" });
    await until(() => p.parts("data-question")[0]?.data.state === "waiting" && p.chat.status === "ready", "the next question", explain(p));
    void p.output({ tool: "ask", toolCallId: p.parts("data-question")[0].data.toolCallId, output: "M" });
    await until(() => p.text() === 'So: result "\\"M\\" false "', "its answer was sent", explain(p));
  },

  async errors(id) {
    const p = await page(id);
    await p.chat.sendMessage({ text: "fail" });
    await until(() => p.chat.error, "the failure", explain(p));
    assert.match(p.chat.error.message, /^The model's provider refused the API key that this server uses\./);
    const again = await page(id);
    assert.match(again.chat.messages.at(-1).metadata.error, /^The model's provider refused the API key/);
    await p.chat.sendMessage({ text: "where" });
    await p.chat.sendMessage({ text: "hello" });
    await until(() => /^The agent is waiting for an answer\./.test(p.chat.error?.message), "the refusal", explain(p));
    assert.doesNotMatch(p.chat.error.message, /[{}"]/);
  },

  async "reloads in the middle of a reply, and at its end"(id) {
    const p = await page(id);
    void p.chat.sendMessage({ text: "story" });
    await until(() => words(p) > 5, "the story begins", explain(p));
    const ended = () => until(() => p.text() === story && p.chat.status === "ready", "the end", explain(p));
    const middle = await page(id);
    const complete = async (again) => {
      await until(() => again.text() === story && again.chat.status === "ready", "the story after a reload", explain(again));
      assert.equal(again.chat.messages.length, 2);
    };
    await complete(await page(id, ended)); // it ends after the messages were read, and before the stream is
    await complete(await page(id));
    await complete(middle);
  },

  async "reloads between a crash and the takeover"(id) {
    const p = await page(id);
    void p.chat.sendMessage({ text: "story" });
    await until(() => words(p) > 20, "the story begins", explain(p));
    await server("kill", "restarted"); // its run is still that of the process which is gone
    const again = await page(id);
    assert.equal(again.chat.messages.length, 1);
    await until(() => again.text() === story && again.chat.status === "ready", "the story, once", explain(again));
    assert.equal(again.chat.messages.length, 2);
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run(`${name.replaceAll(/[^a-z]+/g, "-")}-${version}`);
    console.log("ok " + name);
  } catch (error) {
    failed++;
    console.log("not ok " + name);
    console.error(name, error);
  }
}
process.exit(failed === 0 ? 0 : 1);
