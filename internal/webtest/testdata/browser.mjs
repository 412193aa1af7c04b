// A plain page with the server's own helper, in Chromium, against a server: HELIX_URL.
// HELIX_TEST_CASE runs the cases alone whose names contain it.
import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { createInterface } from "node:readline";

const url = process.env.HELIX_URL;
const story = process.env.HELIX_STORY;
const stdin = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const html = `<!doctype html>
<meta charset="utf-8">
<ol id="messages"></ol>
<p id="status"></p>
<script type="module">
  import { Conversation, events } from "/helix.js";
  const query = new URLSearchParams(location.search);
  window.ran = [];
  const tools = query.get("tools")
    ? { locate: async (input, { toolCallId }) => { window.ran.push(toolCallId); return { lat: 47, asked: input.city }; } }
    : {};
  const draw = (chat) => {
    document.getElementById("status").textContent = chat.status;
    document.getElementById("messages").replaceChildren(...chat.messages.map((message) => {
      const item = document.createElement("li");
      item.className = message.role;
      for (const part of message.parts) {
        const line = document.createElement("p");
        line.className = part.type;
        if (part.type === "text") line.textContent = part.text;
        if (part.type === "dynamic-tool") {
          line.textContent = [part.toolName, part.state, JSON.stringify(part.output ?? part.errorText ?? null)].join(" ");
          if (part.state === "approval-requested" && chat.status === "waiting") {
            for (const [name, answer] of [["Approve", () => chat.approve(part)], ["Deny", () => chat.deny(part, "no")]]) {
              const button = document.createElement("button");
              button.textContent = name;
              button.onclick = answer;
              line.append(button);
            }
          }
        }
        item.append(line);
      }
      return item;
    }));
  };
  window.events = events;
  window.chat = new Conversation({ id: query.get("id"), tools, onchange: draw });
  window.loaded = window.chat.load();
</script>`;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  env: process.env,
});
const context = await browser.newContext();
context.setDefaultTimeout(60_000);
await context.route(url + "/page.html*", (route) => route.fulfill({ contentType: "text/html", body: html }));

async function open(id, { tools = true } = {}) {
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  await page.goto(`${url}/page.html?id=${id}${tools ? "&tools=1" : ""}`);
  await page.waitForFunction(() => window.chat);
  return page;
}

const say = (page, text) => page.evaluate((words) => void window.chat.send(words).catch(() => {}), text);
const status = (page, want) => page.waitForFunction((s) => document.getElementById("status").textContent === s, want);
const lines = (page, kind) => page.locator(`li.assistant:last-child p.${kind}`).allTextContents();
const reply = async (page) => (await lines(page, "text")).join("");
const shows = (page, text) =>
  page.waitForFunction((want) => [...document.querySelectorAll("li.assistant:last-child p.text")].map((p) => p.textContent).join("") === want, text);
const begun = (page, words) =>
  page.waitForFunction((n) => (document.querySelector("li.assistant:last-child p.text")?.textContent ?? "").split(" ").length > n, words);

async function restartServer() {
  process.stdout.write("kill\n");
  const { value } = await stdin.next();
  assert.equal(value, "restarted");
}

const cases = {
  async "text and tools"(id) {
    const page = await open(id);
    await say(page, "hello");
    await shows(page, "Hello, how are you?");
    await say(page, "weather");
    await shows(page, "Looking." + 'So: result {"code":"tool_execution_failed","error":"no weather in Oslo"}');
    assert.deepEqual(await lines(page, "dynamic-tool"), [
      'weather output-available "sun in Rome"',
      'weather output-error "no weather in Oslo"',
    ]);
    return page;
  },

  async "a client tool, run again after a reload"(id) {
    const page = await open(id, { tools: false });
    await say(page, "where");
    await status(page, "waiting");
    assert.deepEqual(await page.evaluate(() => window.chat.waiting().map((part) => part.toolName)), ["locate"]);
    await page.goto(`${url}/page.html?id=${id}&tools=1`);
    await shows(page, 'So: result {"lat":47,"asked":"here"}');
    assert.equal((await page.evaluate(() => window.ran)).length, 1);
    await page.reload();
    await shows(page, 'So: result {"lat":47,"asked":"here"}');
    assert.deepEqual(await page.evaluate(() => window.ran), [], "a tool that was answered has run again");
    return page;
  },

  async "a tool whose deadline has passed is not run"(id) {
    const page = await open(id, { tools: false });
    await say(page, "where");
    await status(page, "waiting");
    await context.route(`${url}/chat/${id}/messages*`, async (route) => {
      const response = await route.fetch();
      const chat = await response.json();
      for (const call of chat.waiting) call.deadline = "2020-01-01T00:00:00Z";
      await route.fulfill({ response, json: chat });
    });
    await page.goto(`${url}/page.html?id=${id}&tools=1`);
    await page.evaluate(() => window.loaded);
    await status(page, "waiting");
    assert.deepEqual(await page.evaluate(() => window.ran), []);
    return page;
  },

  async "an approval granted and one denied"(id) {
    const page = await open(id);
    await say(page, "delete");
    await status(page, "waiting");
    await page.getByRole("button", { name: "Deny" }).nth(1).click();
    await page.waitForFunction(() => document.querySelectorAll("button").length === 2);
    await page.reload(); // one is still to be answered
    await page.getByRole("button", { name: "Approve" }).click();
    await status(page, "ready");
    assert.match(await reply(page), /^So: result /);
    assert.deepEqual(
      (await lines(page, "dynamic-tool")).map((line) => line.split(" ")[1]),
      ["output-available", "output-denied"],
    );
    return page;
  },

  async "a nested approval"(id) {
    const page = await open(id);
    await say(page, "scout");
    await page.getByRole("button", { name: "Approve" }).click();
    await status(page, "ready");
    const before = await lines(page, "dynamic-tool");
    assert.match(before[0], /^subagent__scout output-available "scouted, result/);
    assert.equal(before[1], 'delete output-available "deleted 9"');
    await page.reload();
    await status(page, "ready");
    assert.deepEqual(await lines(page, "dynamic-tool"), before);
    return page;
  },

  async "questions"(id) {
    const page = await open(id);
    const ask = async (about) => {
      await say(page, "ask " + about);
      await status(page, "waiting");
    };
    const asked = () => page.evaluate(() => window.chat.waiting().map((part) => window.chat.question(part)));
    // answer calls a method of the chat with the part that waits. An error is returned.
    const answer = (method, ...values) =>
      page.evaluate(([m, all]) => window.chat[m](window.chat.waiting()[0], ...all).then(() => "", (error) => [error.status, error.code, error.field]), [method, values]);

    await ask("a size");
    await page.reload();
    await status(page, "waiting");
    const [{ questionId, toolCallId, prompt, schema }] = await asked();
    assert.deepEqual([questionId, prompt, schema], [toolCallId + ".q1", "Please: a size", { enum: ["S", "M"] }]);
    assert.deepEqual(await answer("reply", "XL"), [400, "validation_error", "answer"]);
    await status(page, "waiting"); // it can still be answered
    assert.equal((await asked())[0].questionId, questionId);
    assert.equal(await answer("reply", "M"), "");
    await shows(page, 'So: result "\\"M\\" false "');
    assert.deepEqual(await asked(), []);

    await ask("a size");
    assert.equal(await answer("decline", "too private"), "");
    await shows(page, 'So: result " true too private"');

    await ask("yes or no"); // a page that knows only approvals can answer it, too
    await page.getByRole("button", { name: "Deny" }).click();
    await shows(page, 'So: result "{\\"sure\\":false} false "');

    await ask("for a visit");
    assert.equal((await asked())[0].url, "https://example.com/sign-in");
    assert.equal(await answer("reply"), "");
    await shows(page, 'So: result " false "');
    await page.reload();
    await shows(page, 'So: result " false "');
    assert.deepEqual(await asked(), []);
    return page;
  },

  async stop(id) {
    const page = await open(id);
    await say(page, "slow story");
    await begun(page, 5);
    await page.evaluate(() => window.chat.stop("enough"));
    await status(page, "ready");
    const before = await reply(page);
    assert.ok(story.startsWith(before) && before.length < story.length);
    await page.reload();
    await shows(page, before);
    return page;
  },

  async "a run that fails, and is tried again"(id) {
    const page = await open(id);
    await say(page, "fail");
    const failure = () => page.evaluate(() => [window.chat.failure?.code, window.chat.failure?.error, window.chat.failure?.detail, window.chat.error?.code]);
    const want = ["provider_auth", "The model's provider refused the API key that this server uses.", "the key is wrong", "provider_auth"];
    await status(page, "error");
    assert.deepEqual(await failure(), want);
    await page.reload();
    await status(page, "error");
    assert.deepEqual(await failure(), want);
    await page.evaluate(() => window.chat.retry().catch(() => {}));
    await status(page, "error");
    assert.deepEqual(await failure(), want);
    await say(page, "hello"); // one may also say something else
    await shows(page, "Hello, how are you?");
    assert.deepEqual(await failure(), [undefined, undefined, undefined, undefined]);
    return page;
  },

  async "a message that is refused"(id) {
    const page = await open(id);
    await say(page, "delete");
    await status(page, "waiting");
    const send = (options) => page.evaluate((o) => window.chat.send("hello", o).then(() => "", (error) => [error.status, error.code]), options);
    assert.deepEqual(await send(), [409, "state_awaiting_input"]);
    await status(page, "waiting"); // nothing has changed
    assert.equal(await page.locator("li.user").count(), 1);
    assert.equal(await page.getByRole("button", { name: "Approve" }).count(), 2);
    assert.equal(await send({ abandonPending: true }), "");
    await shows(page, "Hello, how are you?");
    assert.deepEqual((await page.locator("li.assistant").first().locator("p.dynamic-tool").allTextContents()).map((line) => line.split(" ")[1]),
      ["output-error", "output-error"]);
    return page;
  },

  async "stop and resume"(id) {
    const page = await open(id);
    await say(page, "slow story");
    await begun(page, 5);
    await page.evaluate(() => window.chat.stop("enough"));
    await status(page, "ready");
    const { stopped, ...state } = await page.evaluate(() => {
      const { stopped, status, connection, failure, messages } = window.chat;
      return { stopped, status, connection, failure, last: messages.at(-1) };
    });
    assert.ok(stopped, JSON.stringify(state));
    await page.reload();
    await page.waitForFunction(() => window.chat?.stopped === true);
    const before = await reply(page);
    await page.evaluate(() => window.chat.resume());
    await status(page, "ready");
    assert.equal(await page.evaluate(() => window.chat.stopped), false);
    assert.ok((await reply(page)).startsWith(before) && (await reply(page)).length > before.length);
    return page;
  },

  async "blobs with a page and a script do not run"(id) {
    const page = await open(id);
    await say(page, "page");
    await status(page, "ready");
    const refs = (await lines(page, "dynamic-tool")).map((line) => line.match(/sha256:[0-9a-f]{64}/)[0]);
    assert.equal(refs.length, 2);
    const at = (ref) => `${url}/sessions/${id}/blobs/${ref}`;
    const ran = [];
    context.on("request", (request) => { if (request.url().includes("/ran-")) ran.push(request.url()); });
    for (const ref of refs) {
      const headers = (await context.request.get(at(ref))).headers();
      assert.match(headers["content-disposition"], /^attachment/);
      assert.equal(headers["content-type"], "application/octet-stream");
      assert.equal(headers["x-content-type-options"], "nosniff");
      assert.match(headers["content-security-policy"], /sandbox/);
    }
    // Opened as a page of its own, it is a download.
    for (const ref of refs) {
      const tab = await context.newPage();
      const download = tab.waitForEvent("download");
      await tab.goto(at(ref)).catch(() => {});
      assert.equal((await download).suggestedFilename(), ref.slice(7, 23) + ".bin");
      assert.notEqual(await tab.title(), "ran");
      await tab.close();
    }
    const opened = [];
    page.on("popup", (tab) => opened.push(tab));
    // Embedded in a page of the same origin, neither is shown or executed.
    const stolen = await page.evaluate(async ([html, script]) => {
      const ended = (element) => new Promise((done) => { element.onload = element.onerror = done; setTimeout(done, 1000); });
      const put = (name, values) => {
        const element = Object.assign(document.createElement(name), values);
        const end = ended(element);
        document.body.append(element);
        return end;
      };
      await Promise.all([
        put("iframe", { src: html }), put("embed", { src: html }), put("object", { data: html }),
        put("script", { src: script }), put("link", { rel: "stylesheet", href: html }),
      ]);
      await import(script).catch(() => {});
      await navigator.serviceWorker?.register(script).catch(() => {});
      // Fetched and then shown in this origin, it keeps a type that browsers do not show.
      for (const address of [html, script]) {
        const data = await (await fetch(address)).blob();
        const local = URL.createObjectURL(data);
        await Promise.all([put("iframe", { src: local }), put("object", { data: local })]);
        window.open(local);
      }
      const frames = [...document.querySelectorAll("iframe")].map((frame) => frame.contentDocument?.title ?? "");
      document.querySelectorAll("iframe, embed, object").forEach((element) => element.remove());
      return [window.stolen ?? false, ...frames];
    }, refs.map(at));
    assert.deepEqual(stolen, [false, "", "", ""]);
    // A tab that shows nothing, because it became a download, closes itself, often before it is reported.
    for (const tab of opened) if (!tab.isClosed()) await tab.waitForEvent("close");
    assert.deepEqual(ran, [], "something of a blob has run");
    page.complaints = []; // what the browser refused
    return page;
  },

  async "a reload in the middle of a stream"(id) {
    const page = await open(id);
    await say(page, "story");
    for (const words of [3, 30, 70]) {
      await begun(page, words);
      await page.reload();
    }
    await shows(page, story);
    await status(page, "ready");
    await page.reload();
    await shows(page, story);
    return page;
  },

  async "the server is killed and restarted under an open page"(id) {
    const page = await open(id);
    await say(page, "story");
    await begun(page, 3);
    const read = page.evaluate(async (sessionId) => {
      const seen = [];
      for await (const { kind, sequence } of window.events({ sessionId })) {
        if (kind === "chunk") seen.push(sequence);
        else if (kind === "end") seen.push("end");
      }
      return seen;
    }, id);
    await begun(page, 10);
    await restartServer();
    await shows(page, story);
    await status(page, "ready");
    const seen = await read;
    assert.equal(seen.pop(), "end");
    assert.deepEqual(seen, seen.map((_, index) => index + 1), "a chunk is lost or doubled");
    await page.reload();
    await shows(page, story);
    return page;
  },
};

let failed = 0;
const only = process.env.HELIX_TEST_CASE;
for (const [name, run] of Object.entries(cases).filter(([known]) => !only || known.includes(only))) {
  try {
    const page = await run(name.replaceAll(/[^a-z]+/g, "-"));
    assert.deepEqual(page.complaints, []);
    await page.close();
    console.log("ok " + name);
  } catch (error) {
    failed++;
    console.log("not ok " + name);
    console.error(name, error);
  }
}
await browser.close();
process.exit(failed === 0 ? 0 : 1);
