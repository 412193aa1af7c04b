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
    const retried = page.waitForResponse((response) => response.url().includes("/retry"));
    await failure(page).getByRole("button").click(); // it fails again, perhaps before anybody can see that it has begun
    await retried;
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
    const text = ("€".repeat(159) + "\n").repeat(11_000).trim(); // few characters, since a browser lays them out slowly
    const posts = [];
    page.on("request", (request) => request.method() === "POST" && posts.push(request.url()));
    assert.ok(Buffer.byteLength(text) > 5 << 20);
    await page.locator("#text").evaluate((e, value) => (e.value = value), text);
    await page.locator("#text").press("Enter");
    await shows(page, "#notice", "The message was not sent");
    assert.deepEqual(posts, [`${url}/chat?sdk=7`]);
    assert.equal(await page.locator("#problem").textContent(), "The message was not sent, because it is too large: the body has more than 4194304 bytes.");
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
    await page.locator(`${last} .card.waiting pre.whole`).waitFor();
    await type();
    await shot(page, "ask");
    assert.equal(await page.locator(".message.user").count(), 1);
    assert.deepEqual(await cards(page), ["forget: waits for you"]);
    await page.getByRole("button", { name: "Answer first" }).click();
    await page.waitForFunction(() => document.activeElement.textContent === "Approve");
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

  async "the list says what each conversation is doing"() {
    const page = await talk("narrator");
    await say(page, "Tell me a story.");
    const story = await session(page);
    const says = (id, word) => shows(page, `#sessions button[title="${id}"]`, word);
    await says(story, "running"); // while it does
    assert.equal(await entry(page, story).locator("span").textContent(), "Tell me a story.");
    assert.ok(await page.locator("#stop").isVisible());
    assert.deepEqual(await page.locator("#sessions [aria-current=true]").evaluateAll((all) => all.map((e) => e.title)), [story]);
    await page.locator("#stop", { hasText: "Stop" }).click();
    await says(story, "stopped");
    await page.locator("#agents button").filter({ hasText: /^assistant/ }).click();
    assert.equal(await page.locator("#sessions [aria-current=true]").count(), 0);
    await say(page, "Forget everything.");
    const forget = await session(page);
    await says(forget, "waiting");
    await shows(page, "#inbox", "Waiting for you");
    await page.locator("#agents button").filter({ hasText: /^ticket/ }).click();
    await say(page, "The printer is on fire.");
    const ticket = await session(page);
    await says(ticket, "done");
    const marks = await Promise.all([story, forget, ticket].map((id) => entry(page, id).locator("small").evaluate((e) => getComputedStyle(e, "::before").content)));
    assert.equal(new Set(marks).size, 3, `${marks}`);
    await shot(page, "list");
    // The inbox leads to what waits, also where a sub-agent asks.
    await page.locator("#agents button").filter({ hasText: /^planner/ }).click();
    await say(page, "Ask the buyer to order ten pencils.");
    await waits(page);
    const order = await session(page);
    await page.locator("#agents button").filter({ hasText: /^ticket/ }).click();
    await page.locator(`#waiting button[title="${order}"]`).click();
    await waits(page);
    assert.equal(await page.locator("#agent").textContent(), "planner");
    assert.deepEqual(await page.locator("#sessions [aria-current=true]").evaluateAll((all) => all.map((e) => e.title)), [order]);
    await press(page, "Deny");
    await hidden(page, `#waiting button[title="${order}"]`);
    await page.locator(`#waiting button[title="${forget}"]`).click();
    await press(page, "Deny");
    await hidden(page, `#waiting button[title="${forget}"]`);
    return page;
  },

  async "two tabs"() {
    const page = await talk("assistant");
    await say(page, "What is 6 * 7?");
    await says(page, "Let me see. 6 * 7 = 42");
    const other = await open(page.url());
    await says(other, "Let me see. 6 * 7 = 42");
    await say(page, "Forget everything.");
    await waits(other); // the idle tab sees it by itself
    assert.deepEqual(await other.locator(".message.user").allTextContents(), ["What is 6 * 7?", "Forget everything."]);
    await press(page, "Approve");
    await says(page, "Let me see. It is all forgotten.");
    await says(other, "Let me see. It is all forgotten.");
    assert.deepEqual(await cards(other), ["forget: done"]);
    await other.close();
    return page;
  },

  async "stop and resume"() {
    const page = await talk("narrator");
    await say(page, "Tell me a story.");
    await begun(page, 5);
    await page.locator("#stop").click();
    await shows(page, "#after .stopped", "Stopped.");
    await page.reload();
    await shows(page, "#after .stopped", "Stopped.");
    assert.match(await reply(page), /^Once there was/);
    await shot(page, "stopped");
    await page.locator("#after .stopped").getByRole("button", { name: "Resume" }).click();
    await hidden(page, "#after .stopped");
    await shows(page, `#sessions button[title="${await session(page)}"]`, "running");
    await page.locator("#stop").click();
    await shows(page, "#after .stopped", "Stopped.");
    return page;
  },

  async "a wrong token, and signing out"() {
    const page = await open(process.env.HELIX_LOCKED_URL, {});
    const login = page.locator("#login");
    await login.waitFor();
    assert.ok(await page.locator("#wrong").isHidden());
    await page.locator("#token").fill("a-token-that-is-wrong");
    await page.locator("#token").press("Enter");
    await shows(page, "#wrong", "This token is not accepted.");
    await shot(page, "login");
    await page.locator("#token").fill(process.env.HELIX_TOKEN);
    await page.locator("#token").press("Enter");
    await page.locator("#agents button").first().waitFor();
    await login.waitFor({ state: "hidden" });
    await say(page, "What is 6 * 7?");
    await says(page, "Let me see. 6 * 7 = 42");
    await page.getByRole("button", { name: "Sign out" }).click();
    await login.waitFor();
    assert.equal(await page.locator(".message").count(), 0);
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
    // A token that stops working in the middle of things says so, too.
    await page.locator("#token").fill(process.env.HELIX_TOKEN);
    await page.locator("#token").press("Enter");
    await page.locator("#agents button").first().waitFor();
    await page.evaluate(() => sessionStorage.setItem("helix:/:token", "expired"));
    await page.reload();
    await shows(page, "#wrong", "Your token is not accepted any more.");
    return page;
  },

  async "suggestions follow the conversation"() {
    const page = await talk("host");
    const offers = () => page.locator(".offers button").allTextContents();
    assert.deepEqual(await offers(), ["Tell the diary to remember that I planted a tree.", "Ask the diary what it remembers."]);
    await page.locator(".offers button").first().click();
    await says(page, "Let me see. The diary says: I will remember that.");
    await page.locator(".offers button").waitFor();
    assert.deepEqual(await offers(), ["Ask the diary what it remembers."]);
    await shot(page, "suggestions");
    await page.locator(".offers button").click();
    await says(page, "Let me see. The diary says: I remember: I planted a tree.");
    assert.deepEqual(await offers(), []);
    return page;
  },

  async "back and forward"() {
    const page = await talk("assistant");
    await say(page, "What is 6 * 7?");
    await says(page, "Let me see. 6 * 7 = 42");
    await page.locator("#text").fill("a draft");
    const first = await session(page);
    await page.locator("#agents button").filter({ hasText: /^ticket/ }).click();
    await shows(page, "#agent", "ticket");
    await say(page, "The printer is on fire.");
    await idle(page);
    const second = await session(page);
    await page.goBack();
    await shows(page, "#session", first);
    await says(page, "Let me see. 6 * 7 = 42");
    assert.equal(await page.locator("#agent").textContent(), "assistant");
    assert.equal(await typed(page), "a draft");
    await page.goForward();
    await shows(page, "#session", second);
    await page.waitForFunction((at) => document.querySelector(at)?.textContent.includes("printer"), last);
    assert.equal(await typed(page), "");
    return page;
  },

  async "an approval that was answered elsewhere"() {
    for (const deaf of [false, true]) {
      const page = await talk("planner");
      await say(page, "Ask the buyer to order ten pencils.");
      await waits(page);
      await page.locator(`${last} .card.waiting pre.whole`).waitFor();
      const other = await open(page.url());
      await waits(other);
      if (deaf) for (const list of ["**/sessions?*", "**/waiting?*"]) await page.route(list, (route) => route.abort());
      await press(other, "Deny");
      await says(other, "Let me see. The buyer says: order did not work: the call was not approved by the user");
      if (deaf) await press(page, "Approve"); // what was denied
      await says(page, "Let me see. The buyer says: order did not work: the call was not approved by the user");
      assert.deepEqual(await cards(page), ["buyer: done", "order: not approved"]);
      assert.deepEqual(page.complaints, []);
      await other.close();
      await page.close();
    }
    return talk("planner");
  },

  async "a thousand messages"() {
    const page = await open();
    await page.waitForFunction(() => location.hash); // the page names the conversation that it begins, and would do so later
    const messages = Array.from({ length: 1000 }, (_, i) => ({
      id: `m-${i}`, role: i % 2 ? "assistant" : "user", parts: [{ type: "text", text: `Message ${i}. ` + "word ".repeat(40) }],
    }));
    await page.route("**/messages?sdk=7", async (route) => {
      const answer = await route.fetch();
      const { messages: more, ...rest } = answer.ok() ? await answer.json() : { messages: [], running: false, waiting: [] };
      await route.fulfill({ json: { sessionId: "long", ...rest, messages: [...messages, ...more] } });
    });
    await page.goto(`${url}/#assistant/long-${Date.now()}`);
    await page.reload();
    await page.waitForFunction(() => document.querySelectorAll(".message").length === 1000);
    await page.evaluate(() => {
      window.changes = [];
      new MutationObserver((records) => {
        const nodes = records.reduce((n, r) => n + 1 + r.addedNodes.length + r.removedNodes.length, 0);
        window.changes.push(nodes);
      }).observe(document.getElementById("transcript"), { subtree: true, childList: true, characterData: true, attributes: true });
    });
    const since = performance.now();
    await page.locator("#text").fill("Tell me a story.");
    await page.locator("#text").press("Enter");
    await page.waitForFunction((at) => document.querySelector(`${at} > .text`)?.textContent.endsWith("began the next."), last);
    await page.waitForFunction(() => document.getElementById("stop").hidden);
    console.log(`a reply after 1,000 messages: ${Math.round(performance.now() - since)} ms`);
    assert.equal(await page.locator(".message").count(), 1002);
    const changes = await page.evaluate(() => window.changes);
    // The observer is called for what came in one go: a chunk, or a few.
    assert.ok(changes.length > 20, `${changes}`);
    assert.ok(changes.every((nodes) => nodes <= 30), `${changes}`);
    assert.ok(changes.toSorted((a, b) => a - b)[changes.length >> 1] <= 4, `${changes}`);
    // What is read aloud is a line, not the transcript.
    const live = await page.locator("[aria-live], [role=status], [role=alert], [role=log]").evaluateAll((all) => all.map((e) => [e.id, e.textContent.length]));
    assert.deepEqual(live.map(([id]) => id).sort(), ["connection", "live", "notice", "wrong"]);
    assert.ok(live.every(([, length]) => length < 200), `${live}`);
    assert.equal(await page.locator("#live").textContent(), "assistant replied.");
    return page;
  },

  async "the keyboard alone"() {
    const page = await talk("assistant");
    const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.textContent);
    const key = (name) => page.keyboard.press(name);
    // to presses Tab until something has the focus.
    const to = async (name, back = false) => {
      for (let i = 0; i < 60; i++) {
        if ((await focused()) === name) return;
        await key(back ? "Shift+Tab" : "Tab");
      }
      assert.fail(`${name} cannot be reached`);
    };
    assert.equal(await focused(), "text");
    await to("What time is it, and what is 6 * 7?", true); // a suggestion
    await key("Enter");
    assert.equal(await focused(), "text");
    await idle(page);
    assert.equal(await focused(), "text");
    await page.keyboard.type("Forget everything.");
    await to("send");
    await key("Enter"); // which hides the button
    assert.equal(await focused(), "text");
    await page.locator(`${last} .card.waiting pre.whole`).waitFor();
    assert.equal(await focused(), "text");
    await to("Approve", true);
    await key("Enter");
    await says(page, "Let me see. It is all forgotten.");
    assert.equal(await focused(), "text");
    // An approval that is asked for while one writes does not take the focus, and the dialog gives it back.
    await page.keyboard.type("Forget everything.");
    await key("Enter");
    await page.locator(`${last} .card.waiting pre.whole`).waitFor();
    await page.keyboard.type("What is 6 * 7?");
    await key("Enter");
    await shows(page, "#ask", "The agent is waiting");
    assert.equal(await focused(), "Answer first");
    await key("Escape");
    await page.waitForFunction(() => document.activeElement.textContent === "Approve");
    await to("Deny");
    await key("Enter");
    await idle(page);
    assert.equal(await focused(), "text");
    await key("Control+a");
    await key("Delete");
    await to("narrator", true); // an agent
    await key("Enter");
    await shows(page, "#agent", "narrator");
    assert.equal(await focused(), "text");
    await page.keyboard.type("Tell me a story.");
    await key("Enter");
    await begun(page, 3);
    assert.equal(await focused(), "text");
    await to("stop");
    await key("Enter");
    await shows(page, "#after .stopped", "Stopped.");
    assert.equal(await focused(), "text");
    await to("Resume", true);
    await key("Enter");
    await hidden(page, "#after .stopped");
    assert.equal(await focused(), "text");
    await to("stop");
    await key("Enter");
    await shows(page, "#after .stopped", "Stopped.");
    await to("absent", true);
    await key("Enter");
    await page.keyboard.type("Hello?");
    await key("Enter");
    await failure(page).waitFor();
    await to("Retry", true);
    await key("Enter");
    assert.equal(await focused(), "text");
    await failure(page).waitFor();
    assert.equal(await focused(), "text");
    // A list that is drawn again leaves the focus where it is.
    const id = await session(page);
    await page.locator(`#sessions button[title="${id}"]`).focus();
    await looks(page, 2);
    assert.equal(await page.evaluate(() => document.activeElement.title), id);
    await key("Enter");
    assert.equal(await focused(), "text");
    return page;
  },

  async "the server is killed and started again in mid-run"() {
    const page = await talk("baker");
    await page.evaluate(() => {
      window.said = []; // what the connection line says, and whether the transcript was ever empty
      new MutationObserver(() => {
        const line = document.getElementById("connection").textContent;
        if (window.said.at(-1) !== line) window.said.push(line);
        if (document.querySelectorAll(".message.user").length > 0 && window.steps > (window.steps = document.querySelectorAll(".card").length)) window.said.push("lost a step");
      }).observe(document.body, { subtree: true, childList: true, characterData: true });
    });
    await say(page, "Bake a loaf of bread.");
    await page.waitForFunction((at) => document.querySelectorAll(`${at} .card`).length >= 3, last);
    const done = await page.locator(`${last} .card pre`).allTextContents();
    await shot(page, "baker");
    const back = restart();
    await shows(page, "#connection", "Reconnecting…");
    await shot(page, "reconnecting");
    await back;
    await shows(page, "#connection", "Recovered");
    await shot(page, "recovered");
    await idle(page);
    assert.deepEqual(await cards(page), Array(6).fill("work: done"));
    // What was finished before the kill has the same times as then: it was not done again.
    const results = await page.locator(`${last} .card pre`).allTextContents();
    assert.deepEqual(results.slice(0, 4), done.slice(0, 4));
    const said = await page.evaluate(() => window.said.filter(Boolean));
    assert.equal(said[0], "Reconnecting…");
    assert.equal(said.at(-1), "Recovered.");
    assert.ok(!said.includes("lost a step"), `${said}`);
    assert.equal(await page.locator(".message").count(), 2);
    return page;
  },

  async "what is sent or waits below is brought into view"() {
    const page = await talk("assistant", { viewport: { width: 800, height: 420 } });
    const seen = (selector) => page.waitForFunction((at) => {
      const [card, view] = [document.querySelectorAll(at), document.getElementById("transcript")].map((e) => (e.length ? e[e.length - 1] : e).getBoundingClientRect());
      return card.bottom <= view.bottom + 1 && card.bottom > view.top;
    }, selector);
    const top = () => page.evaluate(() => document.getElementById("transcript").scrollTo(0, 0));
    await say(page, "Tell me a story.");
    await tellsStory(page);
    assert.ok(await page.locator("#down").isHidden());
    await top();
    await say(page, "Forget everything."); // which is sent, answered and waits below
    await waits(page);
    await seen(`${last} .card.waiting`);
    await top();
    await shows(page, "#down", "Waits for you ↓");
    await shot(page, "waits-below");
    await page.locator("#down").click();
    await seen(`${last} .card.waiting`);
    await page.waitForFunction(() => document.activeElement.textContent === "Approve");
    await hidden(page, "#down");
    await press(page, "Approve");
    await idle(page);
    await say(page, "Tell me a story.");
    await begun(page, 10);
    await top();
    await shows(page, "#down", "More below ↓");
    assert.equal(await page.locator("#transcript").evaluate((e) => e.scrollTop), 0);
    await idle(page);
    assert.equal(await page.locator("#transcript").evaluate((e) => e.scrollTop), 0); // whoever reads above is left there
    await page.locator("#down").focus();
    await page.keyboard.press("Enter");
    await seen(`${last} > .text`);
    return page;
  },

  async "an agent that this server does not have"() {
    const page = await open(`${url}/#ghost/ghost-1`);
    await shows(page, "header", "ghost");
    await shows(page, "#about", "not on this server");
    await shows(page, "#after", "This server does not have the agent ghost");
    assert.ok(await page.locator("#text").isDisabled());
    assert.ok(await page.locator("#send").isDisabled());
    assert.equal(await page.locator(".offers").count(), 0);
    await page.locator("#new").click();
    await page.waitForFunction(() => document.getElementById("agent").textContent === "narrator" && !document.getElementById("text").disabled);
    return page;
  },

  async "a conversation that began elsewhere has a title"() {
    const begin = async (body) => (await fetch(`${url}/start`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) })).json();
    const long = "word ".repeat(40);
    const [plain, own, cut] = [
      await begin({ agentType: "assistant", message: "  Hello from\n elsewhere\u202e " }),
      await begin({ agentType: "assistant", message: "Hello", metadata: { title: "My own" } }), await begin({ agentType: "assistant", message: long }),
    ];
    const page = await open();
    for (const [{ sessionId }, title] of [[plain, "Hello from elsewhere"], [own, "My own"], [cut, `${long.slice(0, 79).trim()}…`]]) {
      await page.waitForFunction(([id, want]) => document.querySelector(`#sessions button[title="${id}"] span`)?.textContent === want, [sessionId, title]);
    }
    return page;
  },

  async "files with a message"() {
    const page = await talk("assistant");
    const dot = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
    const files = [
      { name: "dot.png", mimeType: "image/png", buffer: dot },
      { name: "notes.unknown", mimeType: "", buffer: Buffer.from("Zwölf") },
      { name: "raw.unknown", mimeType: "", buffer: Buffer.from([0xff, 0]) },
      { name: "txt.\u202eexe", mimeType: "application/zip", buffer: Buffer.from("PK") },
    ];
    const names = () => page.locator("#files bdi").allTextContents();
    await page.locator("#pick").setInputFiles(files);
    assert.deepEqual(await names(), ["dot.png", "notes.unknown", "raw.unknown", "txt.\\u202eexe"]);
    await page.getByRole("button", { name: "Remove raw.unknown" }).click();
    await page.locator("#pick").setInputFiles(files.slice(2, 3)); // it can be chosen again
    assert.deepEqual(await names(), ["dot.png", "notes.unknown", "txt.\\u202eexe", "raw.unknown"]);
    await page.locator("#pick").setInputFiles(Array.from({ length: 20 }, (_, i) => ({ name: `${i}`, mimeType: "text/plain", buffer: Buffer.from("x") })));
    await shows(page, "#notice", "19 was not attached. A message takes at most 16 files.");
    assert.equal((await names()).length, 16);
    for (let i = 0; i < 12; i++) await page.locator("#files button").last().click();
    const first = await session(page);
    await page.locator("#new").click(); // files belong to the conversation for which they were chosen
    await hidden(page, "#files");
    await page.goBack();
    await shows(page, "#session", first);
    assert.equal((await names()).length, 4);
    await shot(page, "files");
    await say(page, "What is 6 * 7?");
    await says(page, "Let me see. 6 * 7 = 42");
    assert.deepEqual(await names(), []);
    for (const reload of [false, true]) {
      if (reload) await page.reload();
      await says(page, "Let me see. 6 * 7 = 42");
      const sent = page.locator(".message.user");
      assert.equal(await sent.locator("img").evaluate((e) => `${e.alt} ${e.naturalWidth}`), "dot.png 1");
      assert.deepEqual(
        await sent.locator("a").evaluateAll((all) => all.map((e) => [e.textContent, e.download, e.href])),
        [
          ["notes.unknown", "notes.unknown", "data:text/plain;base64," + files[1].buffer.toString("base64")],
          ["txt._exe", "txt._exe", "data:application/zip;base64,UEs="],
          ["raw.unknown", "raw.unknown", "data:application/octet-stream;base64,/wA="],
        ],
      );
    }
    await shot(page, "files-sent");
    await page.locator("#pick").setInputFiles([{ name: "large.bin", mimeType: "", buffer: Buffer.alloc(3.5 * (1 << 20), 0xff) }]);
    await shows(page, "#notice", "large.bin was not attached. The files of a message may have 3.0 MiB together.");
    await hidden(page, "#files");
    return page;
  },

  async "files that do not arrive"() {
    const page = await talk("assistant");
    const names = () => page.locator("#files bdi").allTextContents();
    const attach = (name) => page.locator("#pick").setInputFiles([{ name, mimeType: "text/plain", buffer: Buffer.from(name) }]);
    await say(page, "Hello.");
    await idle(page);
    const first = await session(page);
    const back = async () => {
      await page.locator("#new").click();
      await page.waitForFunction((id) => document.getElementById("session").textContent !== id, first);
      await hidden(page, "#files");
      await page.goBack();
      await shows(page, "#session", first);
    };
    let refuse = "away";
    await page.route("**/chat?sdk=7", (route) => {
      if (refuse === "away") return route.abort();
      if (refuse === "too large") return route.fulfill({ status: 413, contentType: "application/json", body: '{"error":"the body has more than 4 bytes"}' });
      return route.continue();
    });
    await attach("a.txt");
    await page.locator("#text").fill("What is in it?");
    await page.locator("#text").press("Enter");
    await page.locator(".message.user.pending").waitFor();
    assert.deepEqual(await names(), []);
    await back(); // the conversation is left while the message is being sent
    assert.deepEqual([await names(), await typed(page)], [["a.txt"], "What is in it?"]);
    refuse = "too large";
    await page.locator("#text").press("Enter");
    await shows(page, "#notice", "The message was not sent, because it is too large");
    assert.deepEqual([await names(), await typed(page)], [["a.txt"], "What is in it?"]);
    refuse = "";
    await page.locator("#text").press("Enter");
    await page.waitForFunction(() => document.querySelectorAll(".message.user").length === 2);
    await idle(page);
    assert.deepEqual([await names(), await typed(page)], [[], ""]);
    await attach("a.txt"); // the same again, which was not sent
    await page.locator("#text").fill("What is in it?");
    await back();
    assert.deepEqual([await names(), await typed(page)], [["a.txt"], "What is in it?"]);
    await page.locator(".offers button").first().click(); // a suggestion goes alone
    await page.waitForFunction(() => document.querySelectorAll(".message.user").length === 3);
    await idle(page);
    assert.deepEqual([await names(), await typed(page)], [["a.txt"], "What is in it?"]);
    assert.equal(await page.locator(".message.user").nth(2).locator("a, img").count(), 0);
    return page;
  },

  async "a call that is too deep for a list"() {
    const page = await open();
    await page.route("**/waiting?*", async (route) => {
      const deep = "[".repeat(9000) + "]".repeat(9000);
      const call = `{"toolCallId":"c","toolName":"nest","createdAt":"2026-01-01T00:00:00Z","input":{"title":"Dune\\u202e","days":30,"all":${deep}}}`;
      await route.fulfill({ contentType: "application/json", body: `{"items":[{"sessionId":"s","rootSessionId":"s","agentType":"a","call":${call}}],"hasMore":false}` });
    });
    await shows(page, "#waiting button span", "nest: Dune\\u202e, 30, …");
    await looks(page, 2);
    return page;
  },

  async "a message of a file alone, which was dropped"() {
    const page = await talk("assistant");
    await page.evaluate(() => {
      const data = new DataTransfer();
      data.items.add(new File(["<script>1</script>"], "x.html", { type: "text/html" }));
      for (const type of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
    });
    assert.deepEqual(await page.locator("#files bdi").allTextContents(), ["x.html"]);
    await page.locator("#send").click();
    await idle(page);
    assert.deepEqual(await page.locator(".message.user").evaluateAll((all) => all.map((e) => e.textContent)), ["x.html"]);
    await page.waitForFunction((id) => document.querySelector(`#sessions button[title="${id}"] span`)?.textContent === "x.html", await session(page));
    return page;
  },

  async "a stopped baker bakes on"() {
    const page = await talk("baker");
    await say(page, "Bake a loaf of bread.");
    await page.locator(`${last} .card .state`).filter({ hasText: "running" }).first().waitFor();
    await page.locator("#stop").filter({ hasText: "Stop" }).click();
    await page.locator("#after .standing.stopped button").click();
    await page.locator(`${last} > .text`).filter({ hasText: /Step \d of 6, once more: / }).first().waitFor();
    await page.locator(`${last} .card .state`).filter({ hasText: "running" }).first().waitFor();
    return page;
  },
};

await run(cases, ["the server is killed and started again in mid-run"]);
