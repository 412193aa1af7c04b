// What the page of helix serve says of whatever happens, in Chromium: HELIX_URL is a server of the demo that everybody may use, with
// agents whose models fail until HELIX_MODELS/mend/{agent} is posted to. It says "kill" to have the server killed and started again.
import assert from "node:assert/strict";
import { begun, cards, idle, last, open, press, reply, restart, run, say, says, shot, stored, talk, tellsStory, url, waits } from "./harness.mjs";

const mend = (agent) => fetch(`${process.env.HELIX_MODELS}/mend/${agent}`, { method: "POST" });
const failure = (page) => page.locator("#after .standing.failed");
const entry = (page, id) => page.locator(`#sessions button[title="${id}"]`);
const session = (page) => page.locator("#session").textContent();
const typed = (page) => page.locator("#text").inputValue();

// says that an element of the page comes to have a text.
const shows = (page, selector, text) =>
  page.waitForFunction(([at, want]) => document.querySelector(at)?.checkVisibility() && document.querySelector(at).textContent.includes(want), [selector, text]);
const hidden = (page, selector) => page.waitForFunction((at) => !document.querySelector(at)?.checkVisibility(), selector);

// looks waits until the page has asked for the lists so many times.
async function looks(page, times) {
  for (let i = 0; i < times; i++) await page.waitForResponse((response) => response.url().includes("/waiting?"));
}

// tells checks how a failed run is shown, now and after a reload.
async function tells(page, sentence, detail) {
  for (const reload of [false, true]) {
    if (reload) await page.reload();
    await failure(page).waitFor();
    assert.equal(await failure(page).locator("strong").textContent(), sentence);
    assert.match(await failure(page).locator("pre").textContent(), detail);
    assert.deepEqual(await failure(page).locator("button").allTextContents(), ["Retry"]);
    assert.ok(await page.locator("#notice").isHidden());
  }
  await shows(page, `#sessions button[title="${await session(page)}"]`, "failed");
}

const cases = {
  async "a wrong key"() {
    const page = await talk("locked");
    await say(page, "Hello?");
    await tells(page, "The model's provider refused the API key that this server uses.", /Incorrect API key/);
    await shot(page, "failed");
    await failure(page).getByRole("button").click(); // it fails again
    await hidden(page, "#after .standing.failed");
    await tells(page, "The model's provider refused the API key that this server uses.", /Incorrect API key/);
    await mend("locked");
    await failure(page).getByRole("button").click();
    await says(page, "Now it works.");
    await hidden(page, "#after .standing.failed");
    assert.equal(await page.locator(".message").count(), 2);
    return page;
  },

  async "a model that cannot be reached"() {
    const page = await talk("absent");
    await say(page, "Hello?");
    await tells(page, "The model cannot be reached. Try again in a moment.", /127\.0\.0\.1:1/);
    return page;
  },

  async "a model that fails in mid-reply"() {
    const page = await talk("broken");
    await say(page, "Tell me.");
    await failure(page).waitFor();
    const [shown, sentence] = [await reply(page), await failure(page).locator("strong").textContent()];
    await tells(page, sentence, /./);
    assert.equal(await reply(page), shown);
    assert.match(sentence, /^The model .*\.$/);
    await mend("broken");
    await failure(page).getByRole("button").click();
    await says(page, "Now it works.");
    return page;
  },

  async "a message of 5 MB"() {
    const page = await talk("assistant");
    const text = ("x".repeat(79) + "\n").repeat(5 << 14).trim();
    const posts = [];
    page.on("request", (request) => request.method() === "POST" && posts.push(request.url()));
    await page.locator("#text").evaluate((e, value) => (e.value = value), text);
    await page.locator("#text").press("Enter");
    await shows(page, "#notice", "The message was not sent.");
    assert.deepEqual(posts, [`${url}/chat?sdk=7`]);
    assert.match(await page.locator("#problem").textContent(), /too large|4 MiB|4194304/i);
    assert.equal((await typed(page)).length, text.length);
    assert.equal(await page.locator(".message").count(), 0);
    await looks(page, 2); // what keeps the lists true does not take the notice away
    assert.ok(await page.locator("#notice").isVisible());
    await page.locator("#text").fill("What is 6 * 7?");
    await shot(page, "refused");
    await page.locator("#dismiss").click();
    await hidden(page, "#notice");
    await page.locator("#text").press("Enter");
    await says(page, "Let me see. 6 * 7 = 42");
    return page;
  },

  async "the server is away while one sends"() {
    const page = await talk("assistant");
    await page.route("**/chat?sdk=7", (route) => route.abort());
    await say(page, "What is 6 * 7?");
    await shows(page, "#connection", "Reconnecting…");
    await shows(page, "#after", "Sending …");
    assert.equal(await page.locator(".message.user.pending").count(), 1);
    await page.locator("#stop").click(); // which says Cancel
    await hidden(page, ".message.user");
    assert.equal(await typed(page), "What is 6 * 7?");
    await page.locator("#text").press("Enter");
    await page.locator(".message.user.pending").waitFor();
    await page.reload();
    await page.waitForFunction(() => document.getElementById("text").value === "What is 6 * 7?");
    assert.equal(await page.locator(".message").count(), 0);
    await page.locator("#text").press("Enter");
    await page.locator(".message.user.pending").waitFor();
    await page.unroute("**/chat?sdk=7");
    await says(page, "Let me see. 6 * 7 = 42");
    assert.equal(await page.locator(".message.user").count(), 1);
    assert.equal(await typed(page), "");
    await page.reload();
    await says(page, "Let me see. 6 * 7 = 42");
    assert.equal(await typed(page), "");
    return page;
  },

  async "typing while an approval waits"() {
    const page = await talk("assistant");
    await say(page, "Forget everything.");
    await waits(page);
    const type = async () => {
      await page.locator("#text").fill("What is 6 * 7?");
      await page.locator("#text").press("Enter");
      await shows(page, "#ask", "The agent is waiting for your answer.");
    };
    await type();
    await shot(page, "ask");
    assert.equal(await page.locator(".message.user").count(), 1);
    assert.deepEqual(await cards(page), ["forget: waits for you"]);
    await page.getByRole("button", { name: "Answer first" }).click();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Approve");
    assert.equal(await typed(page), "What is 6 * 7?");
    assert.equal((await stored(page)).pending.length, 1);
    await press(page, "Approve");
    await says(page, "Let me see. It is all forgotten.");
    assert.equal(await typed(page), "What is 6 * 7?"); // it was not lost
    await say(page, "Forget everything.");
    await waits(page);
    await type();
    await page.getByRole("button", { name: "Continue without an answer" }).click();
    await says(page, "Let me see. 6 * 7 = 42");
    assert.equal((await stored(page)).pending.length, 0);
    assert.equal(await typed(page), "");
    const all = page.locator(".message.assistant").nth(1).locator(".card > .head");
    assert.match(await all.textContent(), /^forget(failed|not approved)$/);
    return page;
  },

  async "typing where something waits that the page does not know of"() {
    const page = await talk("assistant");
    await say(page, "What is 6 * 7?");
    await says(page, "Let me see. 6 * 7 = 42");
    for (const list of ["**/sessions?*", "**/waiting?*"]) await page.route(list, (route) => route.abort()); // it hears nothing
    const other = await open(page.url());
    await says(other, "Let me see. 6 * 7 = 42");
    await say(other, "Forget everything.");
    await waits(other);
    await page.locator("#text").fill("Hello.");
    await page.locator("#text").press("Enter");
    await shows(page, "#ask", "The agent is waiting for your answer.");
    assert.deepEqual(await cards(page), ["forget: waits for you"]);
    assert.deepEqual(await page.locator(".message.user").allTextContents(), ["What is 6 * 7?", "Forget everything."]);
    assert.equal(await typed(page), "Hello.");
    await page.keyboard.press("Escape");
    await press(page, "Deny");
    await idle(page);
    await other.close();
    return page;
  },
};

await run(cases, []);
