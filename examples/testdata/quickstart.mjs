// The program of the README: HELIX_URL is its page.
import assert from "node:assert/strict";
import { cards, idle, open, press, reply, run, say, stored, waits } from "./harness.mjs";

await run({
  async "an order is placed when it is approved"() {
    const page = await open();
    await page.locator(".offers button").first().waitFor();
    assert.deepEqual(await page.locator(".offers button").allTextContents(), ["Order ten pencils."]);
    await page.locator(".offers button").click();
    await waits(page);
    assert.deepEqual(await cards(page), ["order: waits for you"]);
    await press(page, "Approve");
    await idle(page);
    assert.match(await reply(page), /ordered/);
    assert.equal((await stored(page)).activity, "done");
    await say(page, "What have we talked about?");
    await idle(page);
    return page;
  },
});
