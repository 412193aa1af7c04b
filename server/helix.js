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
//   await chat.load();                        // loads the history, resumes the stream of a
//                                             // reply in progress, and runs waiting page tools
//   await chat.send("Hello!");
//
// Its state:
//
//   chat.messages   UI messages as in Vercel's AI SDK: { id, role, parts }. Parts are text, reasoning,
//                   file, step-start, data-… and dynamic-tool { toolName, toolCallId, state, input, output }.
//                   A message that the server has not accepted yet has pending: true.
//   chat.status     "ready", "streaming", "waiting" (for answers) or "error"; chat.error is the reason
//   chat.failure    the error of the latest run, if it failed: { error, code, detail, retryable }
//   chat.stopped    whether the latest run was stopped; chat.resume() continues it
//   chat.connection "" usually; "lost" while the server cannot be reached; "back" once it answers again;
//                   "recovered" once the reply in progress has continued or ended
//   chat.compacting set while the conversation is being summarised for the model, which may take a minute:
//                   { kind, tokensBefore }. A part data-compacted { kind, kept, tokensBefore, tokensAfter }
//                   divides the conversation where that was done; kind is summary, trim or clear.
//   chat.earlier    how many messages came before these: a long history is shown from its end
//   chat.retrying   set while the model is asked again because it failed: { attempt } is which attempt that is
//   chat.waiting()  tool parts that wait for a person: approval-requested, or input-available for a tool
//                   that the page does not have
//
// Its methods:
//
//   chat.send(text, { files, metadata, abandonPending, messageId })
//                                sends a message; files are { url, mediaType, filename }, metadata labels
//                                a new chat, abandonPending continues without the answers it waits for;
//                                messageId, by default newID(), is the id under which it is in chat.messages
//   chat.cancel()                cancels a message that the server has not accepted yet
//   chat.approve(part, reason), chat.deny(part, reason)
//   chat.result(part, value), chat.fail(part, text)
//   chat.question(part)          the question that a waiting call asks, or undefined:
//                                { questionId, prompt, schema or url, deadline }, and agent if a
//                                sub-agent asks
//   chat.whole(part)             where the whole result of a call is, if its output is only the beginning and
//                                the end, or undefined: { blobs, bytes, lines, json }; the blobs, each from
//                                /sessions/<id>/blobs/<blob>, are the result, one after another
//   chat.reply(part, answer), chat.decline(part, reason)
//                                answer it; the answer has to fit its schema, and is left out with a url
//   chat.stop(reason)            stops the run; the text so far stays
//   chat.resume(), chat.retry()  continue a stopped run; retry a failed turn
//   chat.close()                 only stops reading: the run continues without its reader
//
// onchange receives the chat and, if only one message has changed, that message.
//
// The chat reconnects until it has the whole reply. The visible part of the reply stays until the
// server sends more, or something else. A request that the server refuses changes nothing: its message
// is removed from chat.messages, and chat.status is restored. Tools whose deadline has passed are not
// run, because their calls have timed out. A tool may run again after a reload, so it should be
// idempotent. Errors are HelixError, with the server's code; a refusal has the HTTP status.
//
// events() reads the session's own stream, frame by frame, and survives lost connections:
//
//   for await (const { kind, sequence, data } of events({ sessionId, from: 0 })) …

/** HelixError is a request that the server refused, or a run that failed. */
export class HelixError extends Error {
  constructor(message, { code = "", status = 0, field = "", detail = "", retryable = false, retryAfter = 0 } = {}) {
    super(message);
    this.name = "HelixError";
    Object.assign(this, { code, status, field, detail, retryable, retryAfter });
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
    this.failure = undefined;
    this.connection = "";
    this.compacting = undefined;
    this.retrying = undefined;
    this.deadlines = new Map(); // of waiting calls, by id
    this.begun = new Set(); // calls that were passed to the page's tools
    this.running = new AbortController();
    this.sending = undefined; // of a message that the server has not accepted yet
    this.opening = undefined; // the latest request that begins or continues a run
    this.onchange = onchange ?? (() => {});
    this.ondata = ondata ?? (() => {});
    this.server = new Server({ url, token, headers, fetch: fetcher, onlost: () => this.connect("lost"), onfound: () => this.found() });
    this.path = "/chat/" + encodeURIComponent(id);
  }

  /** load reads the history and resumes the stream of a run in progress. */
  async load() {
    const chat = await this.history({ persist: true });
    if (chat?.running) await this.attempt(() => this.follow(chat.runId));
    else await this.settle();
  }

  async send(text, { files = [], messageId = newID(), metadata, abandonPending } = {}) {
    const parts = files.map((file) => ({ type: "file", ...file }));
    if (text) parts.push({ type: "text", text });
    const message = { id: messageId, role: "user", parts, pending: true };
    const sending = (this.sending = new AbortController());
    this.messages.push(message);
    await this.attempt(async () => {
      const messages = [{ id: messageId, role: "user", parts }];
      const body = { id: this.id, agent: this.agent, trigger: "submit-message", messages, metadata, abandonPending };
      const signal = AbortSignal.any([this.running.signal, sending.signal]);
      let response;
      try {
        // The message's id makes a repeated request idempotent.
        response = await this.server.persist("POST", "/chat?sdk=7", body, signal);
      } catch (error) {
        this.messages = this.messages.filter((known) => known !== message);
        if (sending.signal.aborted && !this.running.signal.aborted) throw new HelixError("The message was not sent.", { code: "cancelled", status: -1 });
        throw error;
      } finally {
        this.sending = undefined;
      }
      delete message.pending;
      this.onchange(this);
      if (abandonPending) await this.history({ under: true }).catch(() => {}); // the calls that waited have an outcome now
      await this.read(response, this.begin());
    });
  }

  cancel() {
    this.sending?.abort();
  }

  retry() {
    return this.restart("/sessions/" + encodeURIComponent(this.id) + "/retry", {});
  }

  resume() {
    return this.restart("/resume", { sessionId: this.id });
  }

  get stopped() {
    return this.status === "ready" && this.messages.at(-1)?.metadata?.status === "interrupted";
  }

  approve(part, reason) {
    if (this.question(part)) return this.reply(part, said(this.question(part), true));
    return this.answer(part, { approval: { approvalId: part.approval.id, approved: true, reason } });
  }

  deny(part, reason) {
    if (this.question(part)) return this.reply(part, said(this.question(part), false));
    return this.answer(part, { approval: { approvalId: part.approval.id, approved: false, reason } });
  }

  result(part, value) {
    return this.answer(part, { result: value === undefined ? null : value });
  }

  fail(part, text) {
    return this.answer(part, { error: text || "the tool failed" });
  }

  /** question returns the question that the call of a tool part asks, or undefined. */
  question(part) {
    const message = this.messages.findLast((message) => message.parts.includes(part));
    return message?.parts.findLast(
      (other) => other.type === "data-question" && other.data.toolCallId === part.toolCallId && other.data.state === "waiting",
    )?.data;
  }

  /** whole returns where the whole result of a tool part's call is, or undefined. Only the server says so: a tool may return
   * anything, also what looks like it. */
  whole(part) {
    const message = this.messages.findLast((message) => message.parts.includes(part));
    const { data } = message?.parts.findLast((other) => other.type === "data-evicted" && other.data?.toolCallId === part.toolCallId) ?? {};
    return data?.blobs?.length > 0 ? data : undefined;
  }

  reply(part, answer) {
    return this.answer(part, { kind: "question", toolCallId: this.question(part)?.questionId, answer });
  }

  decline(part, reason) {
    return this.answer(part, { kind: "question", toolCallId: this.question(part)?.questionId, declined: true, reason });
  }

  async stop(reason) {
    await this.opening?.catch(() => {}); // before that there is nothing to stop
    try {
      await this.server.json("POST", this.path + "/interrupt", { reason });
    } catch (error) {
      if (error.status !== 409) throw error; // it has ended in the meantime
    }
  }

  close() {
    this.running.abort();
  }

  /** waiting returns the tool parts that wait for a person. */
  waiting() {
    if (this.status !== "waiting") return [];
    return open(this.messages.at(-1)).filter((part) => part.state === "approval-requested" || !this.tools[part.toolName]);
  }

  // The methods below are internal.

  /** history reads the messages and, unless this page is reading a run, the chat's status. */
  async history({ persist = false, under = false } = {}) {
    try {
      const ask = persist ? this.server.persist : this.server.request;
      const response = await ask.call(this.server, "GET", this.path + "/messages?sdk=7", undefined, this.running.signal);
      const chat = await response.json();
      // The history omits a reply in progress. Its visible part stays until its stream is read.
      const [before, last] = this.messages.slice(-2);
      if (chat.running && last?.role === "assistant" && before.id === chat.messages.at(-1)?.id) chat.messages.push(last);
      this.messages = chat.messages;
      this.earlier = chat.earlier ?? 0;
      this.deadlines = new Map(chat.waiting.map((call) => [call.toolCallId, call.deadline]));
      if (!under) {
        this.failure = chat.running ? undefined : chat.error;
        this.settled(chat.waiting.length > 0 && !chat.running);
      }
      this.onchange(this);
      return chat;
    } catch (error) {
      if (error.status === 404) return undefined; // the chat has no messages yet
      throw error;
    }
  }

  async answer(part, answer) {
    await this.attempt(async () => {
      this.opening = this.submit({ toolCallId: part.toolCallId, ...answer }, true);
      const asked = this.question(part);
      const runId = await this.opening;
      if (asked) {
        asked.state = "done";
        if (part.state === "approval-requested") part.state = "approval-responded";
      }
      if (answer.approval) {
        part.state = "approval-responded";
        part.approval = { ...part.approval, ...answer.approval, id: part.approval.id };
      }
      this.onchange(this);
      await this.follow(runId);
    });
  }

  /** restart starts a run, once even if called repeatedly, and reads its stream. */
  async restart(path, body) {
    await this.attempt(async () => {
      this.opening = this.server.persist("POST", path, { ...body, requestId: newID() }, this.running.signal);
      const response = await this.opening;
      await this.follow((await response.json()).runId);
    });
  }

  /** attempt runs an action that streams, and sets the status afterwards. */
  async attempt(work) {
    const { status, failure } = this;
    this.status = "streaming";
    this.error = this.failure = undefined;
    if (this.connection !== "lost") this.connection = "";
    this.onchange(this);
    try {
      await work();
    } catch (error) {
      if (this.running.signal.aborted) return;
      if (error.status) await this.refused(error, status, failure);
      else this.status = "error";
      this.error = error;
      this.onchange(this);
      throw error;
    }
    if (this.connection === "back") this.connection = "recovered";
    await this.settle();
  }

  /** refused restores the state before a refused request. A conflict means that the chat has changed
   * in the meantime, so it is read again. */
  async refused(error, status, failure) {
    Object.assign(this, { status, failure });
    if (error.status !== 404 && error.status !== 409) return;
    await this.history().catch(() => {}); // report the refusal, not this error
  }

  /** settled sets the status of a chat without a running run. */
  settled(waits) {
    this.status = waits ? "waiting" : this.failure ? "error" : "ready";
    if (this.failure) this.error = new HelixError(this.failure.error, this.failure);
  }

  /** connect sets the state of the connection. */
  connect(connection) {
    if (this.connection === connection) return;
    this.connection = connection;
    this.onchange(this);
  }

  /** found is called when the server responds. */
  found() {
    if (this.connection === "lost") this.connect(this.status === "streaming" ? "back" : "");
  }

  /** settle runs the waiting tools of the page, and sets what the chat waits for. */
  async settle() {
    const asked = open(this.messages.at(-1));
    const ours = asked.filter((part) => part.state === "input-available" && this.tools[part.toolName]);
    const runnable = ours.filter((part) => !this.begun.has(part.toolCallId) && !this.overdue(part));
    this.settled(asked.length > 0);
    this.onchange(this);
    for (const part of runnable) this.begun.add(part.toolCallId);
    const answers = await Promise.all(runnable.map((part) => this.carryOut(part)));
    if (answers.length === 0 || this.running.signal.aborted) return;
    await this.attempt(async () => {
      for (const answer of answers.slice(0, -1)) await this.submit(answer, false);
      await this.follow(await this.submit(answers.at(-1), true));
    });
  }

  /** carryOut runs a tool of the page and submits its result. */
  async carryOut(part) {
    const { toolCallId } = part;
    try {
      const value = await this.tools[part.toolName](part.input, { toolCallId, signal: this.running.signal });
      return { toolCallId, result: value === undefined ? null : value };
    } catch (error) {
      return { toolCallId, error: String(error?.message ?? error) || "the tool failed" };
    }
  }

  /** submit submits an answer, idempotently, and returns the run that continues with it. */
  async submit(answer, resume) {
    const path = this.path + "/submit-tool-result";
    const response = await this.server.persist("POST", path, { ...answer, resume }, this.running.signal);
    return (await response.json()).runId;
  }

  overdue(part) {
    const deadline = this.deadlines.get(part.toolCallId);
    return deadline !== undefined && Date.parse(deadline) <= Date.now();
  }

  /** follow reads the stream of the reply in progress, if there is one. */
  async follow(runId) {
    const query = runId ? "&run=" + encodeURIComponent(runId) : "";
    const response = await this.server.persist("GET", this.path + "/stream?sdk=7" + query, undefined, this.running.signal);
    if (response.status === 204) await this.history();
    else await this.read(response, this.begin());
  }

  begin() {
    return { id: newID(), role: "assistant", parts: [] };
  }

  /** read applies a stream to a message. It reconnects when the stream is cut off. */
  async read(response, message) {
    const reply = new Reply(message);
    const since = performance.now();
    let failure;
    let done = false;
    let quiet; // shows what was held back once the stream is idle
    try {
      for await (const { data } of frames(response.body)) {
        clearTimeout(quiet);
        if (data === "[DONE]") {
          done = true;
          break;
        }
        const chunk = JSON.parse(data);
        if (chunk.type === "error") failure = new HelixError(chunk.errorText, { code: reply.message.metadata?.code });
        if (chunk.type.startsWith("data-")) this.ondata(chunk);
        this.compact(chunk);
        this.noteRetry(chunk);
        reply.apply(chunk);
        // What arrives at once was written before the connection was lost.
        if (performance.now() - since > replayTime && this.connection === "back") this.connect("recovered");
        if (!this.show(reply.message, false)) quiet = setTimeout(() => this.show(reply.message, true), quietTime);
      }
    } catch (error) {
      if (this.running.signal.aborted) throw error;
    } finally {
      clearTimeout(quiet);
      this.compacting = this.retrying = undefined;
    }
    if (done) {
      this.show(reply.message, true);
      if (!failure) return;
      const chat = await this.history({ persist: true }).catch(() => {}); // it has the cause besides the sentence
      if (!chat) this.failure = { error: failure.message, code: failure.code };
      throw failure;
    }
    this.connect("lost");
    await this.server.pause(this.running.signal);
    await this.follow(reply.message.metadata?.runId);
  }

  /** compact notes whether the conversation is being compacted: until that ends, or the reply goes on. */
  compact({ type, data }) {
    const before = this.compacting;
    if (type === "data-compacting") this.compacting = data?.reason ? undefined : (data ?? {});
    else if (type === "data-compacted" || !type.startsWith("data-")) this.compacting = undefined;
    if (this.compacting !== before) this.onchange(this);
  }

  /** noteRetry notes whether the model is being asked again: until it says something. */
  noteRetry({ type, data }) {
    const before = this.retrying;
    if (type === "data-attempt-failed") this.retrying = { attempt: (data?.attempt ?? 0) + 1 };
    else if (type !== "start-step" && type !== "reset-step" && !type.startsWith("data-")) this.retrying = undefined;
    if (this.retrying !== before) this.onchange(this);
  }

  /** show puts a reply into the messages, and reports whether it did. A partial reply that is shorter
   * than the visible one is held back unless it is final, so that nothing flickers. */
  show(message, certain) {
    const at = this.messages.findLastIndex((known) => known.id === message.id);
    const known = this.messages[at];
    if (known && known !== message && !certain && covers(known, message)) return false;
    if (known) this.messages[at] = message;
    else this.messages.push(message);
    this.onchange(this, message);
    return true;
  }
}

/** covers reports whether a message contains everything that another one does. */
function covers(shown, message) {
  return message.parts.every((part, i) => {
    const known = shown.parts[i];
    if (known?.type !== part.type) return false;
    if (part.text !== undefined) return i === message.parts.length - 1 ? known.text.startsWith(part.text) : known.text === part.text;
    if (part.toolCallId === undefined) return known.id === part.id;
    const [far, further] = [stages.indexOf(part.state), stages.indexOf(known.state)];
    return known.toolCallId === part.toolCallId && (known.state === part.state || far < Math.min(further, firstEnd));
  });
}

/** stages are the states of a call in the order in which it goes through them. It ends in one of the last three. */
const stages = [
  "input-streaming", "input-available", "approval-requested", "approval-responded", "output-available", "output-error", "output-denied",
];
const firstEnd = stages.indexOf("output-available");

/** said is the answer to a question that asks for one boolean: the answer itself, or its only field. */
function said(question, yes) {
  const fields = Object.keys(question.schema?.properties ?? {});
  return fields.length === 1 ? { [fields[0]]: yes } : yes;
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
        // Another message, since the page may still show this one.
        this.message = { ...message, parts: message.parts.slice(0, message.parts.findLastIndex((part) => part.type === "step-start") + 1) };
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
          throw new HelixError("the stream no longer has the requested chunks", { code: "stream_truncated" });
        }
        if (frame.event === "fail" && data.recoverable) break; // the stream continues on another connection
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
  constructor({ url, token, headers, fetch: fetcher, onlost = () => {}, onfound = () => {} }) {
    Object.assign(this, { onlost, onfound });
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
    let response;
    try {
      response = await this.fetch(this.url + path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
    } catch (error) {
      if (!signal?.aborted) this.onlost();
      throw error;
    }
    if (away.includes(response.status)) this.onlost();
    else this.onfound();
    if (response.ok) {
      this.wait = firstWait;
      return response;
    }
    const told = await response.json().catch(() => ({}));
    const retryAfter = Number(response.headers.get("retry-after")) || 0; // seconds
    throw new HelixError(told.error ?? response.statusText, { ...told, status: response.status, retryAfter });
  }

  /** persist repeats an idempotent request until the server accepts it. */
  async persist(method, path, body, signal) {
    for (let slow = 0; ; ) {
      let after = 0;
      try {
        return await this.request(method, path, body, signal);
      } catch (error) {
        if (signal?.aborted) throw error;
        if (error instanceof HelixError) {
          if (!error.retryable && !away.includes(error.status) && error.status !== 429) throw error;
          if (error.status === 408 && ++slow === mostSlow) throw error; // the connection is too slow for a body of this size
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

const mostSlow = 3; // requests whose body did not arrive in time
const away = [502, 503, 504]; // what a server that is restarting, or a proxy before it, answers
const replayTime = 300; // within which a server sends what it has of a reply
const quietTime = 1000; // without a chunk, after which what is known is shown
const firstWait = 100;
const longestWait = 5000;

/** newID returns a new id of a message, for send. */
export function newID() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return "msg_" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
