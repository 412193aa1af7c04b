// What the page says while a model that failed is asked again: HELIX_URL is a server with an agent whose model works once
// the script has said "kill".
import assert from "node:assert/strict";
import { last, restart, run, say, says, talk } from "./harness.mjs";

const cases = {
  async "a model that is asked again"() {
    const page = await talk("weary");
    await say(page, "Hello?");
    await page.locator("#after .working").filter({ hasText: /^The model failed\. Asking it again, attempt \d+ …$/ }).waitFor();
    assert.equal(await page.locator(`${last} > .text`).count(), 0);
    await restart();
    await says(page, "At last.");
    await page.waitForFunction(() => !document.querySelector("#after .working"));
    return page;
  },
};

await run(cases);
