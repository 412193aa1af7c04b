// Helix in a page, without packages and without a build.
//
//   import { Conversation, events } from "/helix.js";
//
//   const chat = new Conversation({
//     id: "my-chat",                          // the session; made if it is new
//     agent: "desk",                          // of a new chat; the server's first by default
//     token: "…",                             // sent as a bearer token, if set
//     tools: {                                // tools that run in the page
//       locate: async (input, { toolCallId, signal }) => ({ lat: 1, lon: 2 }),
//     },
//     onchange: (chat) => draw(chat.messages, chat.status),
//   });
//   await chat.load();                        // history; goes on with a reply that is being made,
//                                             // and runs the page's tools that wait, once more
//   await chat.send("Hello!");
//
// What it keeps:
//
//   chat.messages   UI messages as in Vercel's AI SDK: { id, role, parts }. Parts are text, reasoning,
//                   file, step-start, data-… and dynamic-tool { toolName, toolCallId, state, input, output }.
//   chat.status     "ready", "streaming", "waiting" (for answers) or "error"; then chat.error says why
//   chat.waiting()  tool parts that wait for a person: approval-requested, or input-available for a tool
//                   that the page does not have
//
// What it does:
//
//   chat.send(text, { files })   says something; files are { url, mediaType, filename }
//   chat.approve(part, reason), chat.deny(part, reason)
//   chat.result(part, value), chat.fail(part, text)
//   chat.stop(reason)            stops the run; what was said stays
//   chat.close()                 stops reading and nothing else: the run goes on without its reader
//
// A connection that is lost is made again until the reply is there. Tools whose deadline has passed
// are not run: the server has answered for them. A tool may run again after a reload, so it should not
// mind. Errors are HelixError, with the server's code.
//
// events() reads the session's own stream, frame by frame, and survives lost connections:
//
//   for await (const { kind, sequence, data } of events({ sessionId, from: 0 })) …

/** HelixError is a request that the server refused, or a run that failed. */
export class HelixError extends Error {
  constructor(message, { code = "", status = 0, field = "", retryable = false, retryAfter = 0 } = {}) {
    super(message);
    this.name = "HelixError";
    Object.assign(this, { code, status, field, retryable, retryAfter });
  }
}

/** Conversation is one chat with an agent. */
export class Conversation {
  constructor({ id, agent, url = "", token, headers = {}, tools = {}, onchange, ondata, fetch: fetcher } = {}) {
    if (!id) throw new HelixError("a conversation needs an id");
    this.id = id;
    this.agent = agent;
    this.tools = tools;
    this.messages = [];
    this.status = "ready";
    this.error = undefined;
    this.deadlines = new Map(); // of calls that wait, by id
    this.begun = new Set(); // calls that the page's tools were given
    this.running = new AbortController();
    this.onchange = onchange ?? (() => {});
    this.ondata = ondata ?? (() => {});
    this.server = new Server({ url, token, headers, fetch: fetcher });
    this.path = "/chat/" + encodeURIComponent(id);
  }

  /** load reads the history and goes on with what is under way. */
  async load() {
    const chat = await this.history();
    if (chat?.running) await this.resume(chat.runId);
    else await this.settle();
  }

  async send(text, { files = [], messageId = newID() } = {}) {
    const parts = files.map((file) => ({ type: "file", ...file }));
    if (text) parts.push({ type: "text", text });
    this.messages.push({ id: messageId, role: "user", parts });
    await this.attempt(async () => {
      const body = { id: this.id, agent: this.agent, trigger: "submit-message", messages: this.messages.slice(-1) };
      // The message's id makes it safe to send it again: it is said once.
      const response = await this.server.persist("POST", "/chat?sdk=7", body, this.running.signal);
      await this.read(response, this.begin());
    });
  }

  approve(part, reason) {
    return this.answer(part, { approval: { approvalId: part.approval.id, approved: true, reason } });
  }

  deny(part, reason) {
    return this.answer(part, { approval: { approvalId: part.approval.id, approved: false, reason } });
  }

  result(part, value) {
    return this.answer(part, { result: value === undefined ? null : value });
  }

  fail(part, text) {
    return this.answer(part, { error: text || "the tool failed" });
  }

  async stop(reason) {
    try {
      await this.server.json("POST", this.path + "/interrupt", { reason });
    } catch (error) {
      if (error.status !== 409) throw error; // it has ended meanwhile
    }
  }

  close() {
    this.running.abort();
  }

  /** waiting lists the tool parts that wait for a person. */
  waiting() {
    if (this.status !== "waiting") return [];
    return open(this.messages.at(-1)).filter((part) => part.state === "approval-requested" || !this.tools[part.toolName]);
  }

  // The rest is for the class itself.

  async history() {
    try {
      const chat = await this.server.json("GET", this.path + "/messages?sdk=7", undefined, this.running.signal);
      this.messages = chat.messages;
      this.deadlines = new Map(chat.waiting.map((call) => [call.toolCallId, call.deadline]));
      this.status = chat.waiting.length > 0 && !chat.running ? "waiting" : "ready";
      this.onchange(this);
      return chat;
    } catch (error) {
      if (error.status === 404) return undefined; // nothing was said yet
      throw error;
    }
  }

  async answer(part, answer) {
    await this.attempt(async () => {
      const runId = await this.submit({ toolCallId: part.toolCallId, ...answer }, true);
      if (answer.approval) {
        part.state = "approval-responded";
        part.approval = { ...part.approval, ...answer.approval, id: part.approval.id };
      }
      this.onchange(this);
      await this.follow(runId);
    });
  }

  /** resume shows the reply that is being made, from its beginning. */
  async resume(runId) {
    await this.attempt(() => this.follow(runId));
  }

  /** attempt does something that streams, and says how that went. */
  async attempt(work) {
    this.status = "streaming";
    this.error = undefined;
    this.onchange(this);
    try {
      await work();
    } catch (error) {
      if (this.running.signal.aborted) return;
      this.status = "error";
      this.error = error;
      this.onchange(this);
      throw error;
    }
    await this.settle();
  }

  /** settle runs the page's tools that wait, and says what the chat waits for. */
  async settle() {
    const asked = open(this.messages.at(-1));
    const ours = asked.filter((part) => part.state === "input-available" && this.tools[part.toolName]);
    const runnable = ours.filter((part) => !this.begun.has(part.toolCallId) && !this.overdue(part));
    this.status = asked.length > 0 ? "waiting" : "ready";
    this.onchange(this);
    for (const part of runnable) this.begun.add(part.toolCallId);
    const answers = await Promise.all(runnable.map((part) => this.carryOut(part)));
    if (answers.length === 0 || this.running.signal.aborted) return;
    await this.attempt(async () => {
      for (const answer of answers.slice(0, -1)) await this.submit(answer, false);
      await this.follow(await this.submit(answers.at(-1), true));
    });
  }

  /** carryOut runs a tool of the page and gives the answer. */
  async carryOut(part) {
    const { toolCallId } = part;
    try {
      const value = await this.tools[part.toolName](part.input, { toolCallId, signal: this.running.signal });
      return { toolCallId, result: value === undefined ? null : value };
    } catch (error) {
      return { toolCallId, error: String(error?.message ?? error) || "the tool failed" };
    }
  }

  /** submit gives an answer, once however often it is sent, and the run that goes on with it. */
  async submit(answer, resume) {
    const path = this.path + "/submit-tool-result";
    const response = await this.server.persist("POST", path, { ...answer, resume }, this.running.signal);
    return (await response.json()).runId;
  }

  overdue(part) {
    const deadline = this.deadlines.get(part.toolCallId);
    return deadline !== undefined && Date.parse(deadline) <= Date.now();
  }

  /** follow reads the stream of the reply that is being made, if there is one. */
  async follow(runId) {
    const query = runId ? "&run=" + encodeURIComponent(runId) : "";
    const response = await this.server.persist("GET", this.path + "/stream?sdk=7" + query, undefined, this.running.signal);
    if (response.status === 204) await this.history();
    else await this.read(response, this.begin());
  }

  begin() {
    return { id: newID(), role: "assistant", parts: [] };
  }

  /** read applies a stream to a message. One that breaks off is taken up again. */
  async read(response, message) {
    const reply = new Reply(message);
    let failure;
    let done = false;
    try {
      for await (const { data } of frames(response.body)) {
        if (data === "[DONE]") {
          done = true;
          break;
        }
        const chunk = JSON.parse(data);
        if (chunk.type === "error") failure = new HelixError(chunk.errorText, { code: reply.message.metadata?.code });
        if (chunk.type.startsWith("data-")) this.ondata(chunk);
        reply.apply(chunk);
        this.show(reply.message);
      }
    } catch (error) {
      if (this.running.signal.aborted) throw error;
    }
    if (done && failure) throw failure;
    if (done) return;
    await this.server.pause(this.running.signal);
    await this.follow(reply.message.metadata?.runId);
  }

  show(message) {
    const at = this.messages.findLastIndex((known) => known.id === message.id);
    if (at >= 0) this.messages[at] = message;
    else this.messages.push(message);
    this.onchange(this);
  }
}

/** open lists the tool parts of a message that wait: all of them are in its last step. */
function open(message) {
  if (message?.role !== "assistant") return [];
  const step = message.parts.slice(message.parts.findLastIndex((part) => part.type === "step-start") + 1);
  return step.filter((part) => part.type === "dynamic-tool" && (part.state === "approval-requested" || part.state === "input-available"));
}

/** Reply makes the parts of a message of chunks. */
export class Reply {
  constructor(message) {
    this.message = message;
    this.open = new Map(); // text and reasoning parts, by id
    this.inputs = new Map(); // inputs that are being written, by call id
  }

  apply(chunk) {
    const { message } = this;
    switch (chunk.type) {
      case "start":
        message.id = chunk.messageId ?? message.id;
        message.metadata = { ...message.metadata, ...chunk.messageMetadata };
        return;
      case "finish":
      case "message-metadata":
        message.metadata = { ...message.metadata, ...chunk.messageMetadata };
        return;
      case "start-step":
        message.parts.push({ type: "step-start" });
        return;
      case "reset-step":
        message.parts.splice(message.parts.findLastIndex((part) => part.type === "step-start") + 1);
        this.open.clear();
        return;
      case "text-start":
      case "reasoning-start": {
        const part = { type: chunk.type.replace("-start", ""), text: "", state: "streaming" };
        this.open.set(chunk.id, part);
        message.parts.push(part);
        return;
      }
      case "text-delta":
      case "reasoning-delta":
        if (this.open.has(chunk.id)) this.open.get(chunk.id).text += chunk.delta;
        return;
      case "text-end":
      case "reasoning-end":
        if (this.open.has(chunk.id)) this.open.get(chunk.id).state = "done";
        this.open.delete(chunk.id);
        return;
      case "file":
        message.parts.push({ type: "file", url: chunk.url, mediaType: chunk.mediaType });
        return;
    }
    if (chunk.type.startsWith("data-")) this.data(chunk);
    else if (chunk.type.startsWith("tool-")) this.tool(chunk);
  }

  data({ type, id, data, transient }) {
    if (transient) return;
    const known = id && this.message.parts.find((part) => part.type === type && part.id === id);
    if (known) known.data = data;
    else this.message.parts.push({ type, id, data });
  }

  tool(chunk) {
    const { parts } = this.message;
    if (chunk.type === "tool-approval-response") {
      const asked = parts.find((part) => part.approval?.id === chunk.approvalId);
      if (asked) {
        asked.state = "approval-responded";
        asked.approval = { id: chunk.approvalId, approved: chunk.approved, reason: chunk.reason };
      }
      return;
    }
    let part = parts.findLast((known) => known.toolCallId === chunk.toolCallId);
    if (!part) {
      if (!chunk.toolName) return;
      part = { type: "dynamic-tool", toolCallId: chunk.toolCallId, toolName: chunk.toolName };
      parts.push(part);
    }
    switch (chunk.type) {
      case "tool-input-start":
        this.inputs.set(chunk.toolCallId, "");
        part.state = "input-streaming";
        return;
      case "tool-input-delta": {
        const text = (this.inputs.get(chunk.toolCallId) ?? "") + chunk.inputTextDelta;
        this.inputs.set(chunk.toolCallId, text);
        try {
          part.input = JSON.parse(text);
        } catch {
          // it is not complete
        }
        return;
      }
      case "tool-input-available":
        part.state = "input-available";
        part.input = chunk.input;
        return;
      case "tool-approval-request":
        part.state = "approval-requested";
        part.approval = { id: chunk.approvalId };
        return;
      case "tool-output-available":
        part.state = "output-available";
        part.output = chunk.output;
        delete part.errorText;
        return;
      case "tool-input-error":
      case "tool-output-error":
        part.state = "output-error";
        part.errorText = chunk.errorText;
        delete part.output;
        return;
      case "tool-output-denied":
        part.state = "output-denied";
        return;
    }
  }
}

/** events yields the frames of a session's stream: { kind, sequence, data }. It ends after the
 * frame "end" or "fail". One that says that chunks are gone, "truncated", is thrown as HelixError. */
export async function* events({ sessionId, from = 0, run, url = "", token, headers = {}, signal, fetch: fetcher } = {}) {
  const server = new Server({ url, token, headers, fetch: fetcher });
  for (;;) {
    const query = new URLSearchParams({ sessionId, from: String(from) });
    if (run) query.set("run", run);
    const response = await server.persist("GET", "/sse?" + query, undefined, signal);
    try {
      for await (const frame of frames(response.body)) {
        const data = JSON.parse(frame.data);
        if (frame.event === "truncated") {
          throw new HelixError("the stream no longer holds what was asked for", { code: "stream_truncated" });
        }
        if (frame.event === "fail" && data.recoverable) break; // it goes on elsewhere
        const sequence = frame.id ? Number(frame.id) : data.sequence;
        if (frame.id) from = sequence;
        yield { kind: frame.event, sequence, data };
        if (frame.event === "end" || frame.event === "fail") return;
      }
    } catch (error) {
      if (error instanceof HelixError || signal?.aborted) throw error;
    }
    await server.pause(signal);
  }
}

/** frames reads server-sent events. */
async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const frame = { event: "", id: "", data: "" };
        for (const line of rest.slice(0, end).split("\n")) {
          const colon = line.indexOf(": ");
          if (colon > 0) frame[line.slice(0, colon)] = line.slice(colon + 2);
        }
        rest = rest.slice(end + 2);
        if (frame.data) yield frame;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // whoever stops reading has no use for the rest
  }
}

/** Server sends requests. */
class Server {
  constructor({ url, token, headers, fetch: fetcher }) {
    this.url = url.replace(/\/$/, "");
    this.headers = { ...headers, ...(token ? { authorization: "Bearer " + token } : {}) };
    this.fetch = fetcher ?? ((...args) => globalThis.fetch(...args));
    this.wait = firstWait;
  }

  async json(method, path, body, signal) {
    return (await this.request(method, path, body, signal)).json();
  }

  async request(method, path, body, signal) {
    const headers = { accept: "application/json, text/event-stream", ...this.headers };
    if (body !== undefined) headers["content-type"] = "application/json";
    const response = await this.fetch(this.url + path, {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (response.ok) {
      this.wait = firstWait;
      return response;
    }
    const told = await response.json().catch(() => ({}));
    const retryAfter = Number(response.headers.get("retry-after")) || 0; // seconds
    throw new HelixError(told.error ?? response.statusText, { ...told, status: response.status, retryAfter });
  }

  /** persist sends a request, which must be safe to repeat, until the server is there and takes it. */
  async persist(method, path, body, signal) {
    for (;;) {
      let after = 0;
      try {
        return await this.request(method, path, body, signal);
      } catch (error) {
        if (signal?.aborted) throw error;
        if (error instanceof HelixError) {
          if (!error.retryable && error.status !== 503 && error.status !== 429) throw error;
          after = error.retryAfter;
        }
      }
      await this.pause(signal, after);
    }
  }

  /** pause waits a while, longer each time the server is not there, and as many seconds as it asked for. */
  async pause(signal, seconds = 0) {
    const wait = seconds * 1000 + this.wait * (0.5 + Math.random() / 2);
    this.wait = Math.min(this.wait * 2, longestWait);
    await new Promise((resolve) => {
      const timer = setTimeout(over, wait);
      function over() {
        clearTimeout(timer);
        signal?.removeEventListener("abort", over);
        resolve();
      }
      signal?.addEventListener("abort", over);
    });
    signal?.throwIfAborted();
  }
}

const firstWait = 100;
const longestWait = 5000;

function newID() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return "msg_" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
