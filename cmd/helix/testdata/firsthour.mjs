// What a newcomer sees in the first hour. HELIX_URL is the page, HELIX_PART which part of the hour it is.
import assert from "node:assert/strict";
import { begun, cards, idle, open, press, reply, restart, run, say, shot, talk, tellsStory, waits } from "./harness.mjs";

async function order(page) {
  await page.locator(".offers button").filter({ hasText: "Order ten pencils." }).click();
  await waits(page);
  assert.deepEqual(await cards(page), ["order: waits for you"]);
  await page.locator("#inbox button").waitFor(); // the lists know it, too
  await shot(page, "approval");
  await press(page, "Approve");
  await idle(page);
  assert.match(await reply(page), /It is ordered\./);
  return page;
}

const parts = {
  async file() {
    return order(await open());
  },

  async own() {
    const page = await talk("keeper");
    await say(page, "Tell me a story.");
    await begun(page, 20);
    await restart();
    await tellsStory(page); // nobody touches the page
    return page;
  },

  async go() {
    const page = await open();
    await page.waitForFunction(() => document.querySelectorAll("#agents button").length === 1);
    return order(page);
  },
};

await run({ [process.env.HELIX_PART]: parts[process.env.HELIX_PART] });
