// The page of helix serve in Chromium: HELIX_URL is a server of the demo that everybody may use, HELIX_LOCKED_URL one that
// wants HELIX_TOKEN. The first has an agent, cashier, that asks for approval of a call with HELIX_INPUT. It says "kill" to have the first killed and started again.
import assert from "node:assert/strict";
import { begun, browser, cards, idle, last, open, press, remains, reply, restart, run, say, says, shot, stored, talk, tellsStory, url, waits } from "./harness.mjs";

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

  async skills() {
    const page = await talk("writer");
    await say(page, "Write a haiku.");
    await idle(page);
    assert.match(await reply(page), /Rain on the harbour/);
    assert.deepEqual(await cards(page), ["load_skill: done"]);
    assert.equal(await page.locator(`${last} .divider`).textContent(), "loaded skill haiku");
    await shot(page, "skill");
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
    assert.match(await page.locator("#notice").textContent(), /input is not the one that was answered|does not match the question/);
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
    await page.locator("#stop", { hasText: "Stop" }).click(); // until the server has the message it says Cancel
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
    await restart();
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
    await page.locator("#after.empty").waitFor();
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
      if (token !== process.env.HELIX_TOKEN) await page.getByText("This token is not accepted.").waitFor();
    }
    await page.locator("#agents button").first().waitFor();
    await say(page, "What is 6 * 7?");
    await says(page, "Let me see. 6 * 7 = 42");
    await page.reload();
    await says(page, "Let me see. 6 * 7 = 42");
    return page;
  },
};

await run(cases, ["the server is killed in mid-reply"]);
