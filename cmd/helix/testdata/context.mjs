// Compactions on the page in Chromium: HELIX_URL is a server whose agents say what they were sent, and whose conversations are
// summarised before the third reply. The summary of talker waits until this script says that the server may be restarted.
import assert from "node:assert/strict";
import { last, open, remains, restart, run, say, shot, talk, url } from "./harness.mjs";

const divider = (page) => page.locator(".divider[role=separator]");
const shows = (page, want) =>
  page.waitForFunction(
    ([at, text]) => document.getElementById("stop").hidden && document.querySelector(`${at} > .text`)?.textContent.startsWith(text),
    [last, want],
  );
const id = (page) => page.locator("#session").textContent();

// post asks the server for something that the page does not offer.
async function post(page, what, body) {
  const response = await fetch(`${url}/sessions/${encodeURIComponent(await id(page))}/${what}`, {
    method: "POST", headers: { "content-type": "application/json" }, body: body && JSON.stringify(body),
  });
  assert.equal(response.status, 200);
  return response.json();
}

// seen checks that the whole conversation is shown.
async function seen(page, ...said) {
  assert.deepEqual(await page.locator(".message.user").allTextContents(), said);
  assert.equal(await page.locator(".message.assistant").count(), said.length);
}

const cases = {
  async "a summary"() {
    const page = await talk("talker");
    await say(page, "one");
    await shows(page, "Sent: user.");
    await say(page, "two");
    await shows(page, "Sent: user assistant user.");
    const other = await open(`${url}/#talker/${await id(page)}`, {}); // somebody else reads along
    await shows(other, "Sent: user assistant user.");
    await say(page, "three");
    await page.waitForFunction(() => document.querySelector("#after .working")?.textContent === "Summarising the conversation for the model, which may take a minute …");
    assert.match(await page.locator("#live").textContent(), /^Summarising the conversation/);
    assert.equal(await divider(page).count(), 0);
    await shot(page, "compacting");
    await other.waitForFunction(() => document.querySelector("#after .working")?.textContent.startsWith("Summarising"));
    await seen(other, "one", "two", "three");
    await page.reload(); // the notice is shown to whoever comes later
    await page.waitForFunction(() => document.querySelector("#after .working")?.textContent.startsWith("Summarising"));
    await restart();
    await shows(page, "Sent: summary user.");
    assert.equal(await page.locator("#after .working").count(), 0);
    assert.match(await divider(page).textContent(), /^summarised for the model · [\d,.]+ → [\d,.]+ tokens$/);
    assert.match(await divider(page).getAttribute("title"), /^The model is sent a summary of what is above, but for the last message before it\. You still see all of it\.$/);
    await shot(page, "divider");
    await say(other, "four");
    for (const reader of [page, other]) {
      await shows(reader, "Sent: summary user assistant user.");
      await seen(reader, "one", "two", "three", "four");
      assert.equal(await divider(reader).count(), 1);
      await remains(reader);
    }
    assert.deepEqual(other.complaints, []);
    const reads = [];
    other.on("request", (request) => request.url().includes("/messages?") && reads.push(request.url()));
    await other.reload();
    await shows(other, "Sent: summary user assistant user.");
    for (let polls = 0; polls < 2; polls++) await other.waitForResponse((response) => response.url().includes("/sessions?roots"));
    assert.equal(reads.length, 1); // what the page shows already is not read again
    await remains(page);
    await page.setViewportSize({ width: 390, height: 740 });
    const [inner, outer] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    assert.ok(inner <= outer, `the page is ${inner} wide on a screen of ${outer}`);
    await shot(page, "divider-phone");
    return page;
  },

  async "a summary that cannot be made"() {
    const page = await talk("failing");
    for (const [said, sent] of [["one", "user"], ["two", "user assistant user"], ["three", "user assistant user assistant user"]]) {
      await say(page, said);
      await shows(page, `Sent: ${sent}.`);
    }
    assert.equal(await divider(page).count(), 0);
    assert.ok(await page.locator("#notice").isHidden());
    await seen(page, "one", "two", "three");
    await remains(page);
    return page;
  },

  async "compacted and cleared by somebody else"() {
    const page = await talk("quick");
    await say(page, "one");
    await shows(page, "Sent: user.");
    await say(page, "two");
    await shows(page, "Sent: user assistant user.");
    for (let polls = 0; polls < 2; polls++) await page.waitForResponse((response) => response.url().includes("/sessions?roots"));
    const compacted = await post(page, "compact", { force: true });
    assert.deepEqual([compacted.done, compacted.kind], [true, "summary"]);
    await divider(page).waitFor(); // the page notices it by itself
    await seen(page, "one", "two");
    const cleared = await post(page, "clear");
    assert.deepEqual([cleared.done, cleared.kind], [true, "clear"]);
    await page.waitForFunction(() => document.querySelectorAll(".divider").length === 2);
    assert.match(await divider(page).nth(1).textContent(), /^cleared for the model( · [\d,.]+ tokens)?$/);
    await seen(page, "one", "two");
    await remains(page);
    await say(page, "three");
    await shows(page, "Sent: clear user.");
    await seen(page, "one", "two", "three");
    await remains(page);
    return page;
  },

  async "what a divider may say"() {
    const page = await talk("quick");
    await say(page, "one");
    await shows(page, "Sent: user.");
    const parts = [{ kind: "trim", kept: 1200, tokensBefore: 80000, tokensAfter: 30000 }, { kind: "another" }, undefined];
    await page.route("**/messages?sdk=7", async (route) => {
      const answer = await route.fetch();
      const body = JSON.parse(await answer.text());
      parts.forEach((data, i) => body.messages.at(-1).parts.push({ type: "data-compacted", id: `m${i}`, data }));
      await route.fulfill({ response: answer, json: body });
    });
    await page.reload();
    await divider(page).nth(2).waitFor();
    assert.deepEqual(await divider(page).allTextContents(), [
      `shortened for the model · ${(80000).toLocaleString("en-US")} → ${(30000).toLocaleString("en-US")} tokens`, "compacted for the model", "compacted for the model",
    ]);
    assert.match(await divider(page).first().getAttribute("title"), /but for the last 1,200 messages before it/);
    return page;
  },
};

await run(cases);
