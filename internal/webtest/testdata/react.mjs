// The example of a chat in React, built in DIST, in Chromium, against a server: HELIX_URL.
import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import path from "node:path";
import { createInterface } from "node:readline";

const url = process.env.HELIX_URL;
const story = process.env.HELIX_STORY;
const stdin = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  env: process.env,
});
const context = await browser.newContext();
context.setDefaultTimeout(60_000);
await context.route(url + "/", (route) => route.fulfill({ path: path.join(process.env.DIST, "index.html") }));
await context.route(url + "/assets/*", (route) =>
  route.fulfill({ path: path.join(process.env.DIST, new URL(route.request().url()).pathname) }));

async function open(id) {
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  await page.goto(`${url}/#${id}`);
  await page.waitForSelector("form");
  return page;
}

async function say(page, text) {
  await page.fill("input", text);
  await page.click("button:text-is('Send')");
}

const last = "section[aria-label=assistant]:last-of-type";
const shows = (page, text) =>
  page.waitForFunction(([at, want]) => [...document.querySelectorAll(at + " > p")].map((p) => p.textContent).join("|") === want, [last, text]);
const idle = (page) => page.waitForSelector("button:text-is('Send')");
const tools = (page) => page.locator(last + " legend").allTextContents();

const cases = {
  async "text and tools"(id) {
    const page = await open(id);
    await say(page, "hello");
    await shows(page, "A greeting.|Hello, how are you?");
    await idle(page);
    await say(page, "weather");
    await page.waitForSelector(`${last} >> text=no weather in Oslo`);
    await idle(page);
    assert.deepEqual(await tools(page), ["weather: output-available", "weather: output-error"]);
    return page;
  },

  async "a tool of the page"(id) {
    const page = await open(id);
    await say(page, "choose");
    await page.click("button:text-is('coffee')");
    await shows(page, 'So: result "coffee"');
    assert.deepEqual(await tools(page), ["choose: output-available"]);
    return page;
  },

  async "approvals, one granted and one denied"(id) {
    const page = await open(id);
    await say(page, "delete");
    await page.locator("button:text-is('Approve')").first().click();
    await page.locator("button:text-is('Deny')").first().click();
    await page.waitForSelector(`${last} >> text=So: result`);
    assert.deepEqual((await tools(page)).sort(), ["delete: output-available", "delete: output-denied"]);
    return page;
  },

  async "an approval below, after a reload"(id) {
    const page = await open(id);
    await say(page, "scout");
    await page.waitForSelector("button:text-is('Approve')");
    await page.reload();
    await page.click("button:text-is('Approve')");
    await page.waitForSelector(`${last} >> text=scouted`);
    return page;
  },

  async "a reload in mid-reply, and a server that is killed"(id) {
    const page = await open(id);
    await say(page, "story");
    await page.waitForSelector(`${last} >> text=word10`);
    await page.reload();
    await shows(page, story);
    await say(page, "story");
    await page.waitForSelector(`${last} >> text=word10`);
    process.stdout.write("kill\n");
    assert.equal((await stdin.next()).value, "restarted");
    await page.reload(); // useChat does not reconnect by itself
    await shows(page, story);
    return page;
  },

  async "stop"(id) {
    const page = await open(id);
    await say(page, "story");
    await page.waitForSelector(`${last} >> text=word10`);
    await page.click("button:text-is('Stop')");
    await idle(page);
    await page.reload();
    await page.waitForSelector(`${last} >> text=word10`);
    assert.ok(!(await page.locator(last).textContent()).includes("word120"), "the reply continued");
    return page;
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
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
