// What axe-core finds on the page, in light and dark: HELIX_URL is a server of agents that ask and write, HELIX_LOCKED_URL one
// that wants a token.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { idle, last, open, run, say, shot, url, waits } from "./harness.mjs";

const axe = readFileSync(new URL("./node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

async function check(page, what) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  const found = violations.flatMap(({ id, help, nodes }) => nodes.map((node) => `${id}: ${help}: ${node.target} ${node.html}`));
  assert.deepEqual(found, [], what);
}

async function talkTo(page, agent) {
  await page.locator("#agents button").filter({ hasText: new RegExp("^" + agent) }).click();
  await page.waitForFunction((name) => document.getElementById("agent").textContent === name, agent);
}

async function attach(page) {
  await page.locator("#attach:enabled").waitFor();
  await page.locator("#pick").setInputFiles(["a.txt", "a name that is long.bin"].map((name) => ({ name, mimeType: "", buffer: Buffer.from([0xff]) })));
  assert.equal(await page.locator("#files li").count(), 2);
}

const cases = {};
for (const colorScheme of ["light", "dark"]) {
  cases[`axe finds nothing, ${colorScheme}`] = async () => {
    const page = await open(url, { colorScheme });
    await check(page, "empty");
    await talkTo(page, process.env.HELIX_WRITER);
    await attach(page);
    await check(page, "files to be sent");
    await say(page, "Show me.");
    await idle(page);
    await check(page, "markdown");
    await talkTo(page, "asker");
    for (const about of ["a parcel", "a size", "a receipt"]) {
      await say(page, `Ask about ${about}.`);
      await waits(page);
      await check(page, about);
      await page.locator(`${last} .card.waiting button`).filter({ hasText: /decline/i }).first().click().catch(() => {});
      await page.locator("#new").click();
    }
    await page.goto(`${url}/#ghost/ghost-1`);
    await page.locator("#about").filter({ hasText: "not on this server" }).waitFor();
    await check(page, "an agent that is not there");
    const locked = await open(process.env.HELIX_LOCKED_URL, { colorScheme });
    await locked.locator("#token").waitFor();
    await check(locked, "signing in");
    await locked.close();
    const narrow = await open(url, { colorScheme, viewport: { width: 390, height: 780 } });
    await attach(narrow);
    await check(narrow, "on a phone");
    await shot(narrow, `phone-${colorScheme}`);
    await narrow.close();
    return page;
  };
}

await run(cases);
