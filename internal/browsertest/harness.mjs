// What the scripts share that use the page in Chromium: HELIX_URL is a server of the demo that everybody may use.
// HELIX_TEST_CASE runs the cases alone whose names contain it, HELIX_TEST_HALF those of one half, 0 or 1.
import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { createInterface } from "node:readline";

export const url = process.env.HELIX_URL;
const shots = process.env.HELIX_TEST_SCREENSHOTS;
export const stdin = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  env: process.env,
});

export const usual = await browser.newContext();

export async function open(address = url, options) {
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

export async function shot(page, name) {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png` });
}

// talk begins a conversation with an agent.
export async function talk(agent, options) {
  const page = await open(url, options);
  await page.locator("#agents button").filter({ hasText: new RegExp("^" + agent) }).click();
  await page.waitForFunction((name) => document.getElementById("agent").textContent === name, agent);
  return page;
}

export async function say(page, text) {
  const before = await page.locator(".message.user").count();
  await page.locator("#text").fill(text);
  await page.locator("#text").press("Enter");
  await page.waitForFunction((n) => document.querySelectorAll(".message.user").length > n, before);
}

export const last = ".message.assistant:last-child";
export const idle = (page) => page.waitForFunction((at) => document.querySelector(at) && !document.getElementById("send").hidden, last);
export const reply = async (page) => (await page.locator(`${last} > .text`).allTextContents()).join("");
export const says = (page, text) =>
  page.waitForFunction(
    ([at, want]) => document.getElementById("stop").hidden && [...document.querySelectorAll(`${at} > .text`)].map((e) => e.textContent).join("") === want,
    [last, text],
  );
export const begun = (page, words) =>
  page.waitForFunction(([at, n]) => (document.querySelector(`${at} > .text`)?.textContent ?? "").split(" ").length > n, [last, words]);
export const cards = (page) =>
  page.locator(`${last} .card > .head`).evaluateAll((heads) => heads.map((head) => [...head.children].map((e) => e.textContent).join(": ")));
export const press = (page, name) => page.locator(`${last} .card.waiting`).getByRole("button", { name, exact: true }).click();
export const waits = (page) => page.locator(`${last} .card.waiting`).waitFor();

// stored is how the server says that the conversation stands.
export async function stored(page) {
  const id = await page.locator("#session").textContent();
  return (await fetch(`${url}/status?sessionId=${encodeURIComponent(id)}`)).json();
}

// tellsStory waits for the whole story, which must be what the server holds, to the letter.
export async function tellsStory(page) {
  await page.waitForFunction((at) => document.querySelector(`${at} > .text`)?.textContent.endsWith("began the next."), last);
  await idle(page);
  const text = await reply(page);
  assert.equal(text, (await stored(page)).text);
  assert.match(text, /^Once there was a lighthouse keeper/);
  assert.equal(await page.locator(".message").count(), 2);
}

// remains checks that a reload changes nothing that is shown.
export async function remains(page) {
  // What agents that were called said is shown while they say it.
  await page.locator(".nested").evaluateAll((shown) => shown.forEach((e) => e.remove()));
  const before = await page.locator("#transcript").innerText();
  await page.reload();
  await page.waitForFunction((want) => document.getElementById("transcript").innerText === want, before);
}

let failed = 0;

async function attempt(name, test) {
  const since = performance.now();
  try {
    const page = await test();
    assert.deepEqual(page.complaints, []);
    await page.close();
    console.log(`ok ${name} (${Math.round(performance.now() - since)} ms)`);
  } catch (error) {
    failed++;
    console.log("not ok " + name);
    console.error(name, error);
    for (const page of browser.contexts().flatMap((context) => context.pages())) {
      console.error(page.url(), await page.locator("body").innerText().catch(String));
    }
  }
}

// run runs cases, three at a time, and then those that want the server to themselves.
export async function run(cases, alone = []) {
  const only = process.env.HELIX_TEST_CASE;
  const half = process.env.HELIX_TEST_HALF;
  const names = Object.keys(cases).filter((name, i) => (only ? name.includes(only) : half !== String(1 - (i % 2))));
  const shared = names.filter((name) => !alone.includes(name));
  await Promise.all(
    [1, 2, 3].map(async () => {
      while (shared.length > 0) {
        const name = shared.shift();
        await attempt(name, cases[name]);
      }
    }),
  );
  for (const name of names.filter((name) => alone.includes(name))) await attempt(name, cases[name]);
  await browser.close();
  process.exit(failed === 0 ? 0 : 1);
}

// restart has the server killed and started again.
export async function restart() {
  process.stdout.write("kill\n");
  assert.equal((await stdin.next()).value, "restarted");
}
