// useChat, headless, against a server: HELIX_URL. AI_VERSION is the major version of the packages.
import { JSDOM } from "jsdom";
import assert from "node:assert/strict";
import { createInterface } from "node:readline";

const dom = new JSDOM("<!doctype html><div id=root></div>", { url: "http://127.0.0.1/" });
globalThis.window = dom.window;
globalThis.document = dom.window.document;
Object.defineProperty(globalThis, "navigator", { value: dom.window.navigator, configurable: true });

const { createElement } = await import("react");
const { createRoot } = await import("react-dom/client");
const { useChat } = await import("@ai-sdk/react");
const ai = await import("ai");

const url = process.env.HELIX_URL;
const version = process.env.AI_VERSION;
const story = process.env.HELIX_STORY;
const stdin = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** page mounts a component with a chat, as a page that was opened. */
async function page(id, { resume = false, transport } = {}) {
  const history = await read(id);
  const state = { chat: undefined, calls: [], errors: [], dropped: new Set() };
  function Chat() {
    const chat = useChat({
      id,
      messages: history.messages,
      resume,
      transport: new ai.DefaultChatTransport({
        api: url + "/chat",
        headers: { "x-helix-ai-sdk": version },
        ...transport?.(history),
      }),
      sendAutomaticallyWhen: (options) =>
        ai.lastAssistantMessageIsCompleteWithToolCalls(options) || ai.lastAssistantMessageIsCompleteWithApprovalResponses(options),
      onToolCall: ({ toolCall }) => {
        state.calls.push(toolCall.toolName);
        if (toolCall.toolName === "locate") {
          state.chat.addToolOutput({ tool: "locate", toolCallId: toolCall.toolCallId, output: { lat: 47 } });
        }
      },
      onError: (error) => state.errors.push(error),
      // A client of version 6 cannot be told to take parts back, only that they are: it hides their step.
      onData: ({ type }) => {
        const last = state.chat.messages.at(-1);
        if (type === "data-dropped") state.dropped.add(`${last.id}/${steps(last.parts)}`);
      },
    });
    state.chat = chat;
    return createElement("pre", null, JSON.stringify(chat.messages));
  }
  const root = createRoot(document.createElement("div"));
  root.render(createElement(Chat));
  await until(() => state.chat, "the chat is mounted");
  return Object.assign(state, {
    history,
    close: () => root.unmount(),
    ready: (label) => until(() => state.chat.status === "ready", label + ": ready", () => state.chat.error),
    last: () => state.chat.messages.at(-1),
    parts: (type) => state.chat.messages.at(-1)?.parts?.filter((part) => part.type === type) ?? [],
    tools: (name) => state.chat.messages.at(-1)?.parts?.filter((part) => part.toolName === name) ?? [],
    text: () =>
      shown(state)
        .at(-1)
        ?.parts.filter((part) => part.type === "text")
        .map((part) => part.text)
        .join("") ?? "",
  });
}

const steps = (parts) => parts.filter((part) => part.type === "step-start").length;

/** shown is what the page shows of its messages; that of the user is no reply. */
function shown({ chat, dropped }) {
  return chat.messages.map((message, at) => {
    if (message.role === "user") return { ...message, parts: at === chat.messages.length - 1 ? [] : message.parts };
    const hidden = (_, index) => dropped.has(`${message.id}/${steps(message.parts.slice(0, index + 1))}`);
    return { ...message, parts: message.parts.filter((part, index) => !hidden(part, index)) };
  });
}

async function read(id) {
  const response = await fetch(`${url}/chat/${encodeURIComponent(id)}/messages?sdk=${version}`);
  if (response.status === 404) return { messages: [], running: false };
  assert.equal(response.status, 200);
  return response.json();
}

/** eventually wants something to be true once React has drawn what there is. */
async function eventually(claim) {
  for (const end = Date.now() + 60_000; ; ) {
    try {
      return await claim();
    } catch (error) {
      if (Date.now() > end) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function until(condition, label, why) {
  const end = Date.now() + 60_000;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`waited in vain: ${label} ${why?.() ?? ""}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** seen is what a person sees of messages, whether they were streamed or loaded. */
function seen(messages) {
  return JSON.parse(JSON.stringify(messages)).map(({ id, role, parts }) => ({
    id,
    role,
    parts: parts
      .filter((part) => !part.type.startsWith("data-subagent"))
      .map(({ id: _id, state, rawInput: _raw, approval: _approval, ...part }) =>
        part.type === "text" || part.type === "reasoning" ? part : { ...part, state },
      ),
  }));
}

/** same wants a reload to show what the page shows. */
async function same(p, id) {
  const { messages } = await read(id);
  await eventually(() => assert.deepEqual(seen(shown(p)), seen(messages)));
  const safe = await ai.safeValidateUIMessages({ messages });
  assert.ok(safe.success, String(safe.error));
}

async function restartServer() {
  process.stdout.write("kill\n");
  const { value } = await stdin.next();
  assert.equal(value, "restarted");
}

const words = (p) => p.text().split(" ").length;

const cases = {
  async text(id) {
    const p = await page(id);
    await p.chat.sendMessage({ text: "hello" });
    await eventually(() => {
      assert.equal(p.text(), "Hello, how are you?");
      assert.equal(p.parts("reasoning")[0].text, "A greeting.");
      assert.equal(p.last().metadata.status, "completed");
    });
    await same(p, id);
    p.close();
  },

  async "tools in parallel"(id) {
    const p = await page(id);
    await p.chat.sendMessage({ text: "weather" });
    await eventually(() => {
      const [rome, oslo] = p.tools("weather");
      assert.deepEqual([rome.state, rome.output], ["output-available", "sun in Rome"]);
      assert.equal(oslo.state, "output-error");
      assert.match(oslo.errorText, /no weather in Oslo/);
    });
    await same(p, id);
    p.close();
  },

  async "a client tool"(id) {
    const p = await page(id);
    await p.chat.sendMessage({ text: "where" });
    await until(() => p.text().includes("So:"), "the answer was sent", () => JSON.stringify(p.chat.messages));
    await p.ready("client tool");
    await eventually(() => assert.equal(p.text(), 'So: result {"lat":47}'));
    assert.deepEqual(p.calls, ["locate"]);
    assert.equal(p.chat.messages.length, 2);
    await same(p, id);
    p.close();
  },

  async "an approval granted and one denied"(id) {
    const p = await page(id);
    await p.chat.sendMessage({ text: "delete" });
    const states = () => p.tools("delete").map((part) => part.state);
    await eventually(() => assert.deepEqual(states(), ["approval-requested", "approval-requested"]));
    await same(p, id);
    const [first, second] = p.tools("delete");
    await p.chat.addToolApprovalResponse({ id: first.approval.id, approved: true });
    await p.chat.addToolApprovalResponse({ id: second.approval.id, approved: false, reason: "keep it" });
    await until(() => p.text().includes("So:"), "the answers were sent", () => JSON.stringify(p.chat.messages));
    await p.ready("approvals");
    await eventually(() => assert.deepEqual(states(), ["output-available", "output-denied"]));
    assert.equal(p.tools("delete")[0].output, "deleted 1");
    assert.equal(p.chat.messages.length, 2);
    await same(p, id);
    p.close();
  },

  async "a nested approval, after a reload"(id) {
    let p = await page(id);
    await p.chat.sendMessage({ text: "scout" });
    await eventually(() => assert.equal(p.tools("delete")[0].state, "approval-requested"));
    await same(p, id);
    p.close();
    p = await page(id);
    const [part] = p.tools("delete");
    assert.equal(part.state, "approval-requested");
    await p.chat.addToolApprovalResponse({ id: part.approval.id, approved: true });
    await until(() => p.text().includes("So:"), "the answer was sent", () => JSON.stringify(p.chat.messages));
    await p.ready("nested");
    await eventually(() => {
      assert.equal(p.tools("delete")[0].output, "deleted 9");
      assert.match(p.tools("subagent__scout")[0].output, /scouted, result "deleted 9"/);
    });
    await same(p, id);
    p.close();
  },

  async stop(id) {
    const p = await page(id);
    const sent = p.chat.sendMessage({ text: "story" });
    await until(() => words(p) > 5, "the story begins");
    await p.chat.stop();
    await sent;
    assert.ok((await read(id)).running, "closing the connection has stopped the run");
    const stopped = await fetch(`${url}/chat/${id}/interrupt`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ reason: "enough" }),
    });
    assert.equal(stopped.status, 202);
    await until(async () => !(await read(id)).running, "the run has stopped");
    const after = await page(id);
    assert.equal(after.last().metadata.status, "interrupted");
    assert.ok(after.text().startsWith(p.text()), "what was seen is not kept");
    assert.ok(story.startsWith(after.text()) && after.text().length < story.length);
    await same(after, id);
    p.close();
    after.close();
  },

  async "a reload in the middle of a stream"(id) {
    const p = await page(id);
    void p.chat.sendMessage({ text: "story" });
    const pages = [];
    for (const many of [5, 40, 80]) {
      await until(() => words(p) > many, `word ${many}`);
      const again = await page(id, { resume: true });
      assert.ok(again.history.running);
      assert.equal(again.history.messages.length, 1);
      await until(() => words(again) > many, `word ${many} after the reload`);
      pages.push(again);
    }
    for (const again of pages) {
      await again.ready("after the reload");
      await eventually(() => assert.equal(again.text(), story));
      await same(again, id);
      again.close();
    }
    await p.ready("the first page");
    await eventually(() => assert.equal(p.text(), story));
    await same(p, id);
    p.close();
  },

  async "a reload that comes too late for the stream"(id) {
    const p = await page(id);
    void p.chat.sendMessage({ text: "story" });
    await until(() => words(p) > 5, "the story begins");
    const { runId, messages } = await read(id);
    await p.ready("the story");
    assert.equal(messages.length, 1);
    const late = await page(id, {
      transport: () => ({ prepareReconnectToStreamRequest: () => ({ api: `${url}/chat/${id}/stream?sdk=${version}&run=${runId}` }) }),
    });
    late.chat.setMessages(messages);
    await until(() => late.chat.messages.length === 1, "only what was said");
    await late.chat.resumeStream();
    await until(() => late.text() === story, "the whole story");
    await same(late, id);
    p.close();
    late.close();
  },

  async "the server is killed and restarted"(id) {
    const p = await page(id);
    const sent = p.chat.sendMessage({ text: "story" });
    await until(() => words(p) > 20, "the story begins");
    await restartServer();
    await sent;
    await until(() => p.chat.status === "error", "the page notices");
    const again = await page(id, { resume: true });
    assert.ok(again.history.running);
    await until(() => again.text().length > 0 || again.errors.length > 0, "the story continues");
    await again.ready("after the restart");
    await eventually(() => assert.equal(again.text(), story));
    await same(again, id);
    await again.chat.sendMessage({ text: "hello" });
    await eventually(() => assert.equal(again.text(), "Hello, how are you?"));
    await same(again, id);
    p.close();
    again.close();
  },

  async "the server is killed while it waits for an approval"(id) {
    const p = await page(id);
    await p.chat.sendMessage({ text: "scout" });
    await eventually(() => assert.equal(p.tools("delete")[0].state, "approval-requested"));
    await restartServer();
    await p.chat.addToolApprovalResponse({ id: p.tools("delete")[0].approval.id, approved: false, reason: "no" });
    await until(() => p.text().includes("So:"), "the answer was sent", () => JSON.stringify(p.chat.messages));
    await p.ready("after the restart");
    await eventually(() => assert.equal(p.tools("delete")[0].state, "output-denied"));
    await same(p, id);
    p.close();
  },

  async "a regenerated reply"(id) {
    const p = await page(id);
    await p.chat.sendMessage({ text: "hello" });
    await p.chat.sendMessage({ text: "weather" });
    await p.chat.regenerate();
    await p.ready("regenerated");
    await eventually(() => assert.equal(p.chat.messages.length, 4));
    await same(p, id);
    await p.chat.sendMessage({ text: "something else", messageId: p.chat.messages[2].id });
    await p.ready("edited");
    await eventually(() => assert.equal(p.text(), "So: something else"));
    await same(p, id);
    p.close();
  },

  async "failures are errors"(id) {
    const p = await page(id);
    await p.chat.sendMessage({ text: "delete" });
    await p.chat.sendMessage({ text: "hello" });
    await until(() => p.chat.status === "error", "the page has an error");
    assert.equal(p.errors[0].message, "The agent is waiting for an answer. Give it first.");
    p.close();
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
