// The page of helix serve in Chromium: HELIX_URL is a server of the demo that everybody may use, HELIX_LOCKED_URL one that
// wants HELIX_TOKEN. The first has an agent, cashier, that asks for approval of a call with HELIX_INPUT. It says "kill" to have the first killed and started again.
import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { createInterface } from "node:readline";

const url = process.env.HELIX_URL;
const shots = process.env.HELIX_TEST_SCREENSHOTS;
const stdin = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  env: process.env,
});

const usual = await browser.newContext();

async function open(address = url, options) {
  const context = options ? await browser.newContext(options) : usual;
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  page.on("console", (message) => {
    // What a server that is away or refuses leads to is the browser's to tell.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) page.complaints.push(message.text());
  });
  await page.goto(address, { waitUntil: "commit" });
  await page.locator("#composer").waitFor();
  return page;
}

async function shot(page, name) {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png` });
}

// talk begins a conversation with an agent.
async function talk(agent, options) {
  const page = await open(url, options);
  await page.locator("#agents button").filter({ hasText: new RegExp("^" + agent) }).click();
  await page.waitForFunction((name) => document.getElementById("agent").textContent === name, agent);
  return page;
}

async function say(page, text) {
  const before = await page.locator(".message.user").count();
  await page.locator("#text").fill(text);
  await page.locator("#text").press("Enter");
  await page.waitForFunction((n) => document.querySelectorAll(".message.user").length > n, before);
}

const last = ".message.assistant:last-child";
const idle = (page) => page.waitForFunction((at) => document.querySelector(at) && !document.getElementById("send").hidden, last);
const reply = async (page) => (await page.locator(`${last} > .text`).allTextContents()).join("");
const says = (page, text) =>
  page.waitForFunction(
    ([at, want]) => document.getElementById("stop").hidden && [...document.querySelectorAll(`${at} > .text`)].map((e) => e.textContent).join("") === want,
    [last, text],
  );
const begun = (page, words) =>
  page.waitForFunction(([at, n]) => (document.querySelector(`${at} > .text`)?.textContent ?? "").split(" ").length > n, [last, words]);
const cards = (page) =>
  page.locator(`${last} .card > .head`).evaluateAll((heads) => heads.map((head) => [...head.children].map((e) => e.textContent).join(": ")));
const press = (page, name) => page.locator(`${last} .card.waiting`).getByRole("button", { name, exact: true }).click();
const waits = (page) => page.locator(`${last} .card.waiting`).waitFor();

// stored is how the server says that the conversation stands.
async function stored(page) {
  const id = await page.locator("#session").textContent();
  return (await fetch(`${url}/status?sessionId=${encodeURIComponent(id)}`)).json();
}

// tellsStory waits for the whole story, which must be what the server holds, to the letter.
async function tellsStory(page) {
  await page.waitForFunction((at) => document.querySelector(`${at} > .text`)?.textContent.endsWith("went on with the next."), last);
  await idle(page);
  const text = await reply(page);
  assert.equal(text, (await stored(page)).text);
  assert.match(text, /^Once there was a lighthouse keeper/);
  assert.equal(await page.locator(".message").count(), 2);
}

// remains checks that a reload changes nothing that is shown.
async function remains(page) {
  // What agents that were called said is shown while they say it.
  await page.locator(".nested").evaluateAll((shown) => shown.forEach((e) => e.remove()));
  const before = await page.locator("#transcript").innerText();
  await page.reload();
  await page.waitForFunction((want) => document.getElementById("transcript").innerText === want, before);
}

const cases = {
  async text() {
    const page = await talk("assistant");
    await shot(page, "empty");
    await page.getByRole("button", { name: "Tell me a story.", exact: true }).click();
    await begun(page, 5);
    await shot(page, "streaming");
    await tellsStory(page);
    await remains(page);
    return page;
  },

  async "tools at the same time"() {
    const page = await talk("assistant");
    await say(page, "What time is it, and what is 6 * 7?");
    await idle(page);
    assert.match(await reply(page), /^Let me see\. It is .*\n6 \* 7 = 42$/s);
    assert.deepEqual(await cards(page), ["clock: done", "calculate: done"]);
    await shot(page, "tools");
    await remains(page);
    return page;
  },

  async "a tool of the client's"() {
    const page = await talk("assistant");
    await say(page, "Choose between tea and coffee.");
    await waits(page);
    await shot(page, "choose");
    await page.reload();
    await press(page, "tea");
    await says(page, "Let me see. So it is tea.");
    assert.deepEqual(await cards(page), ["choose: done"]);
    await remains(page);
    return page;
  },

  async "an approval granted"() {
    const page = await talk("assistant");
    await say(page, "Remember that the compass points north.");
    await says(page, "Let me see. I will remember that.");
    await say(page, "Forget everything.");
    await waits(page);
    await shot(page, "approval");
    await press(page, "Approve");
    await says(page, "Let me see. It is all forgotten.");
    assert.deepEqual(await cards(page), ["forget: done"]);
    await remains(page);
    return page;
  },

  async "an approval denied"() {
    const page = await talk("assistant");
    await say(page, "Forget everything.");
    await waits(page);
    await press(page, "Deny");
    await idle(page);
    await page.waitForFunction((at) => document.querySelector(at).textContent.includes("not approved by the user"), last);
    assert.deepEqual(await cards(page), ["forget: not approved"]);
    await shot(page, "denied");
    await remains(page);
    return page;
  },

  async "an approval that is hard to show"() {
    const page = await talk("cashier");
    await say(page, "Refund order 7.");
    await waits(page);
    const whole = page.locator(`${last} .card.waiting pre.whole`);
    await whole.waitFor();
    for (const reload of [false, true]) {
      if (reload) await page.reload();
      await whole.waitFor();
      const text = await whole.textContent();
      const lines = text.split("\n").map((line) => line.trim());
      // All of it, and as it is: numbers, too, that a browser would round.
      assert.deepEqual(JSON.parse(text), JSON.parse(process.env.HELIX_INPUT));
      assert.equal(Object.keys(JSON.parse(text)).length, 40);
      for (const line of ['"key00": 0,', '"key35": 35,', '"question": "Refund 5 EUR for order 7?",', '"options": [],', '"amount": 5000000.00,', '"big": 12345678901234567890123']) {
        assert.equal(lines.filter((known) => known === line).length, 1, line);
      }
      assert.ok(text.includes('"payee\\u202e\\u200b": {'));
      assert.ok(text.includes('"na\\u200dme": "Bob \\u202e321 \\u2066x\\u2069 \\u00ad\\ufeff\\udb40\\udc41 \\u001b[2J\\n שלום \\u00a0 \\ufe0f end"'));
      assert.doesNotMatch(text, /(?![ \n])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/u);
      // It is seen from its beginning.
      await page.waitForFunction((at) => {
        const [top, view] = [document.querySelector(`${at} .card.waiting`), document.getElementById("transcript")].map((e) => e.getBoundingClientRect().top);
        return Math.abs(top - view) < 50;
      }, last);
      // Nothing of it is cut off or hidden, and the buttons come after it.
      const [high, inner, wide, innerWide, bottom, button] = await whole.evaluate((e) => [
        e.clientHeight, e.scrollHeight, e.clientWidth, e.scrollWidth, e.getBoundingClientRect().bottom,
        e.parentElement.querySelector("button").getBoundingClientRect().top,
      ]);
      assert.ok(high >= inner && wide >= innerWide && button >= bottom, `${[high, inner, wide, innerWide, bottom, button]}`);
      assert.deepEqual(await page.locator(`${last} .card.waiting button`).allTextContents(), ["Approve", "Deny"]);
    }
    await shot(page, "hostile");
    await page.locator("#transcript").evaluate((e) => (e.scrollTop = e.scrollHeight));
    await shot(page, "hostile-end");
    const [sent] = await Promise.all([page.waitForRequest((r) => r.url().endsWith("/submit-tool-result")), press(page, "Approve")]);
    const body = sent.postData();
    assert.ok(body.includes('"seen":{"toolName":"refund","input":{') && body.includes("12345678901234567890123") && body.includes("5000000.00"));
    assert.deepEqual(JSON.parse(body).seen.input, JSON.parse(process.env.HELIX_INPUT));
    await says(page, "It is paid.");
    assert.deepEqual(await cards(page), ["refund: done"]);
    return page;
  },

  async "an approval of what was not shown"() {
    // What the page drew is what is approved: a server that has another call refuses it.
    const page = await talk("assistant");
    await page.route("**/status?*", async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, body: (await answer.text()).replace('"input":{}', '"input":{"only":"this"}') });
    });
    await say(page, "Forget everything.");
    await waits(page);
    await page.locator(`${last} .card.waiting pre.whole`).waitFor();
    assert.equal(await page.locator(`${last} .card.waiting pre.whole`).textContent(), '{\n  "only": "this"\n}');
    await press(page, "Approve");
    await page.waitForFunction(() => !document.getElementById("notice").hidden);
    assert.match(await page.locator("#notice").textContent(), /input is not the one that was answered|does not fit/);
    assert.equal((await stored(page)).pending.length, 1);
    return page;
  },

  async "pictures"() {
    const id = "pictures-" + Date.now();
    const dot = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    const far = "https://pictures.example.net/who-looks.png";
    const parts = [
      { type: "file", url: far, mediaType: "image/png", filename: "far.png" }, { type: "file", url: dot, mediaType: "image/png", filename: "near.png" },
      { type: "text", text: "What is 6 * 7?" },
    ];
    const body = JSON.stringify({ id, agent: "assistant", messages: [{ id: "m-1", role: "user", parts }] });
    const begun = await fetch(`${url}/chat`, { method: "POST", headers: { "content-type": "application/json" }, body });
    assert.equal(begun.status, 200);
    await begun.text();
    const context = await browser.newContext();
    const page = await context.newPage();
    page.complaints = [];
    page.on("console", (message) => message.type() === "error" && page.complaints.push(message.text()));
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    const response = await page.goto(`${url}/#assistant/${id}`);
    await says(page, "Let me see. 6 * 7 = 42");
    assert.ok(!asked.some((address) => address.includes("example.net")), `${asked}`);
    assert.match(response.headers()["content-security-policy"], /img-src 'self' data:;/);
    assert.deepEqual(await page.locator(".message.user img").evaluateAll((all) => all.map((e) => [e.src.slice(0, 10), e.naturalWidth])), [["data:image", 1]]);
    const link = page.locator(".message.user a");
    assert.deepEqual([await link.textContent(), await link.getAttribute("href"), await link.getAttribute("rel")], [`far.png (${far})`, far, "noopener noreferrer"]);
    await shot(page, "pictures");
    return page;
  },

  async "a nested approval granted"() {
    const page = await talk("planner");
    await say(page, "Ask the buyer to order ten pencils.");
    await waits(page);
    await shot(page, "nested");
    assert.deepEqual(await cards(page), ["buyer: waits", "order: waits for you"]);
    await page.reload();
    await waits(page);
    await press(page, "Approve");
    await says(page, "Let me see. The buyer says: It is ordered.");
    assert.deepEqual(await cards(page), ["buyer: done", "order: done"]);
    await shot(page, "nested-done");
    return page;
  },

  async "a nested approval denied"() {
    const page = await talk("planner");
    await say(page, "Ask the buyer to order ten pencils.");
    await waits(page);
    await press(page, "Deny");
    await says(page, "Let me see. The buyer says: order did not work: the call was not approved by the user");
    return page;
  },

  async "a companion"() {
    const page = await talk("host");
    await say(page, "Tell the diary to remember that I planted a tree.");
    await says(page, "Let me see. The diary says: I will remember that.");
    await say(page, "Ask the diary what it remembers.");
    await says(page, "Let me see. The diary says: I remember: I planted a tree.");
    await shot(page, "companion");
    await remains(page);
    return page;
  },

  async "structured output"() {
    const page = await talk("ticket");
    await say(page, "The printer on floor 3 is on fire. Urgent!");
    await idle(page);
    assert.deepEqual(await cards(page), ["output: "]);
    const shown = JSON.parse(await page.locator(`${last} .card pre`).textContent());
    assert.deepEqual(shown, (await stored(page)).output);
    assert.equal(shown.priority, "high");
    await shot(page, "output");
    await remains(page);
    return page;
  },

  async stop() {
    const page = await talk("narrator");
    await say(page, "Tell me a story.");
    await begun(page, 5);
    await page.locator("#stop").click();
    await idle(page);
    assert.equal((await stored(page)).status, "interrupted");
    assert.match(await reply(page), /^Once there was/);
    await shot(page, "stopped");
    await remains(page);
    await say(page, "Hello.");
    await page.locator("#stop").click();
    await idle(page);
    assert.equal(await page.locator(".message").count(), 4);
    return page;
  },

  async "a reload in mid-reply"() {
    const page = await talk("assistant");
    await say(page, "Tell me a story.");
    for (const words of [3, 20, 40]) {
      await begun(page, words);
      await page.reload();
    }
    await tellsStory(page);
    return page;
  },

  async "the server is killed in mid-reply"() {
    const page = await talk("assistant");
    await say(page, "Tell me a story.");
    await begun(page, 10);
    process.stdout.write("kill\n");
    assert.equal((await stdin.next()).value, "restarted");
    await tellsStory(page);
    await remains(page);
    return page;
  },

  async "two pages, and an earlier conversation"() {
    const page = await talk("assistant");
    await say(page, "Tell me a story.");
    await begun(page, 3);
    const other = await open(page.url());
    await tellsStory(other);
    await tellsStory(page);
    const id = await page.locator("#session").textContent();
    await page.locator("#agents button").filter({ hasText: /^ticket/ }).click();
    await page.locator(".empty").waitFor();
    await page.locator(`#sessions button[title="${id}"]`).click();
    await tellsStory(page);
    await shot(page, "earlier");
    assert.deepEqual(other.complaints, []);
    await other.close();
    return page;
  },

  async "a dark and narrow screen"() {
    const page = await talk("planner", { colorScheme: "dark", viewport: { width: 390, height: 780 } });
    await shot(page, "narrow-empty");
    await say(page, "Ask the buyer to order ten pencils.");
    await waits(page);
    await shot(page, "narrow");
    const [shown, wide] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(shown <= wide, `the page is ${shown} wide on a screen of ${wide}`);
    await press(page, "Approve");
    await says(page, "Let me see. The buyer says: It is ordered.");
    await page.setViewportSize({ width: 1200, height: 800 });
    await shot(page, "dark");
    return page;
  },

  async "a server that wants a token"() {
    const page = await open(process.env.HELIX_LOCKED_URL);
    for (const token of ["a-token-that-is-wrong", process.env.HELIX_TOKEN]) {
      await page.locator("#login").waitFor();
      await shot(page, "login");
      await page.locator("#token").fill(token);
      await page.locator("#token").press("Enter");
      await page.waitForFunction((value) => sessionStorage.getItem("helix.token") === value, token);
    }
    await page.locator("#agents button").first().waitFor();
    await say(page, "What is 6 * 7?");
    await says(page, "Let me see. 6 * 7 = 42");
    await page.reload();
    await says(page, "Let me see. 6 * 7 = 42");
    return page;
  },
};

let failed = 0;

async function attempt(name) {
  const since = performance.now();
  try {
    const page = await cases[name]();
    assert.deepEqual(page.complaints, []);
    await page.close();
    console.log(`ok ${name} (${Math.round(performance.now() - since)} ms)`);
  } catch (error) {
    failed++;
    console.log("not ok " + name);
    console.error(name, error);
    for (const page of browser.contexts().flatMap((context) => context.pages())) {
      console.error(page.url(), await page.locator("body").innerText());
    }
  }
}

const alone = "the server is killed in mid-reply";
const names = Object.keys(cases).filter((name) => name !== alone);
await Promise.all(
  [1, 2, 3].map(async () => {
    while (names.length > 0) await attempt(names.shift());
  }),
);
await attempt(alone);
await browser.close();
process.exit(failed === 0 ? 0 : 1);
