// Questions of tools on the page in Chromium: HELIX_URL is a server whose agent asks about what it is told.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { cards, last, open, press, remains, run, say, says, shot, stored, talk, url, waits } from "./harness.mjs";

const card = (page) => page.locator(`${last} .card.waiting`);
const text = (page) => card(page).locator("> .text").textContent();
const phone = { viewport: { width: 390, height: 740 } };

async function asks(about, options, agent = "asker") {
  const page = await talk(agent, options);
  await say(page, `Ask about ${about}.`);
  await waits(page);
  return page;
}

// refused waits for an error; the question still waits, and has the focus.
async function refused(page, why) {
  await page.locator("#notice").waitFor();
  assert.match(await page.locator("#problem").textContent(), why);
  await waits(page);
  assert.equal((await stored(page)).pending.length, 1);
  await page.waitForFunction((at) => document.querySelector(at).contains(document.activeElement), `${last} .card.waiting`);
}

// pictures are taken of the page as it is and on a telephone.
async function pictures(page, name) {
  await shot(page, `question-${name}`);
  const wide = page.viewportSize();
  await page.setViewportSize(phone.viewport);
  const [inner, outer] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(inner <= outer, `the page is ${inner} wide on a screen of ${outer}`);
  const reach = await card(page).evaluate((e) => [...e.querySelectorAll("*")].every((inside) => inside.getBoundingClientRect().right <= e.getBoundingClientRect().right + 1));
  assert.ok(reach, "something reaches beyond the card");
  await shot(page, `question-${name}-phone`);
  await page.setViewportSize(wide);
}

const cases = {
  async "a text, refused at first"() {
    const page = await asks("a name");
    assert.equal(await text(page), "What is your name?\nThe whole one.");
    assert.match(await card(page).locator("> .state").textContent(), /^asked by asker$/);
    await pictures(page, "text");
    await card(page).locator("input").fill("Al");
    await press(page, "Answer");
    await refused(page, /answer/);
    assert.equal(await card(page).locator("input").inputValue(), "Al"); // what was typed is still there
    await shot(page, "question-refused");
    await page.reload(); // the question is shown again
    await waits(page);
    assert.equal(await text(page), "What is your name?\nThe whole one.");
    await card(page).locator("input").fill("Albert");
    await card(page).locator("input").press("Enter");
    await says(page, 'So: "\\"Albert\\""');
    assert.ok(await page.locator("#notice").isHidden());
    assert.deepEqual(await cards(page), ["inquire: done"]);
    await remains(page);
    return page;
  },

  async "an empty text is not sent"() {
    const page = await asks("anything");
    await press(page, "Answer"); // the browser says what is missing
    assert.equal(await card(page).locator("input:invalid").count(), 1);
    assert.equal((await stored(page)).pending.length, 1);
    await card(page).locator("input").fill("17"); // which is a text here
    await press(page, "Answer");
    await says(page, 'So: "\\"17\\""');
    return page;
  },

  async "yes or no"() {
    const page = await asks("wrapping");
    await pictures(page, "boolean");
    assert.deepEqual(await card(page).locator("button").allTextContents(), ["Yes", "No", "Decline"]);
    await press(page, "No");
    await says(page, 'So: "false"');
    await remains(page);
    return page;
  },

  async "yes or no as a field"() {
    const page = await asks("a receipt");
    await pictures(page, "receipt");
    assert.match(await card(page).textContent(), /Print a receipt.*It costs paper\./);
    await press(page, "Yes");
    await says(page, 'So: "{\\"receipt\\":true}"');
    return page;
  },

  async "one of a few, and then another question"() {
    const page = await asks("a size");
    await pictures(page, "enum");
    assert.deepEqual(await card(page).locator("button").allTextContents(), ["S", "M", "L", "Decline"]);
    await press(page, "M");
    await page.waitForFunction((at) => document.querySelector(at)?.textContent === "Shall I wrap it?", `${last} .card.waiting > .text`);
    await page.reload();
    await press(page, "Yes");
    await says(page, 'So: "\\"M\\" true"');
    await remains(page);
    return page;
  },

  async "one of many"() {
    const page = await asks("a number");
    await pictures(page, "list");
    await press(page, "Answer");
    assert.equal(await card(page).locator("select:invalid").count(), 1);
    await card(page).locator("select").selectOption({ label: "10" });
    await press(page, "Answer");
    await says(page, 'So: "10"');
    return page;
  },

  async "a form, refused at first"() {
    const page = await asks("a parcel");
    await pictures(page, "form");
    const field = (label) => card(page).getByLabel(label);
    await field("Address").fill("1 High Street, Rome");
    await field("weight").fill("heavy");
    await field("speed").selectOption({ label: "by sea" });
    await press(page, "Answer");
    await refused(page, /weight/);
    assert.equal(await field("Address").inputValue(), "1 High Street, Rome");
    await shot(page, "question-form-refused");
    await field("weight").fill("12345678901234567890"); // which this browser would round
    await press(page, "Answer");
    await refused(page, /weight/);
    await field("weight").fill("2.5");
    await field("insured").selectOption({ label: "No" });
    await press(page, "Answer");
    await says(page, 'So: "{\\"to\\":\\"1 High Street, Rome\\",\\"weight\\":2.5,\\"speed\\":\\"s\\",\\"insured\\":false}"');
    return page;
  },

  async "JSON, for what is no form"() {
    const page = await asks("a route");
    await pictures(page, "json");
    for (const wrong of ["Rome", '["Rome"]']) {
      await card(page).locator("textarea").fill(wrong);
      await press(page, "Answer");
      await refused(page, /answer/);
    }
    await card(page).locator("textarea").fill('["Rome","Oslo"]');
    await press(page, "Answer");
    await says(page, 'So: "[\\"Rome\\",\\"Oslo\\"]"');
    return page;
  },

  async "an address to visit"() {
    const page = await asks("sign-in");
    await pictures(page, "url");
    const link = card(page).locator("a");
    // The letter that looks like another is written out in the host.
    const address = "https://xn--pst-sed.example.com/sign-in?next=%2Fhome";
    assert.deepEqual([await link.getAttribute("href"), await link.textContent()], [address, address]);
    assert.deepEqual([await link.getAttribute("target"), await link.getAttribute("rel")], ["_blank", "noopener noreferrer"]);
    assert.equal(await card(page).locator(".address small").textContent(), "opens xn--pst-sed.example.com in a new tab");
    assert.match(await card(page).locator("> .state").textContent(), /^asked by asker$/);
    await page.context().route("https://**", (route) => route.fulfill({ contentType: "text/html", body: "<title>post</title>" }));
    const [tab] = await Promise.all([page.waitForEvent("popup"), link.click()]); // not any page, because other tests open some
    await tab.waitForLoadState();
    assert.deepEqual(await tab.evaluate(() => [window.opener, document.referrer]), [null, ""]);
    await tab.close();
    await press(page, "Done");
    await says(page, 'So: "confirmed"');
    return page;
  },

  async "addresses that are none"() {
    for (const address of ["javascript:document.title='ran'", "data:text/html,<script>1</script>", "https://good.example@evil.example/", "//evil.example"]) {
      const page = await asks("sign-in");
      await page.route("**/messages?sdk=7", async (route) => {
        const answer = await route.fetch();
        const body = JSON.parse(await answer.text());
        for (const part of body.messages.flatMap((message) => message.parts)) if (part.type === "data-question") part.data.url = address;
        await route.fulfill({ response: answer, json: body });
      });
      await page.reload();
      await card(page).locator(".error").waitFor();
      assert.equal(await card(page).locator("a").count(), 0);
      assert.deepEqual(await card(page).locator("button").allTextContents(), ["Decline"]);
      assert.deepEqual(page.complaints, []);
      await page.close();
    }
    return open();
  },

  async "declined"() {
    const page = await asks("a parcel");
    await press(page, "Decline");
    await says(page, 'So: "declined"');
    assert.deepEqual(await cards(page), ["inquire: done"]);
    await remains(page);
    return page;
  },

  async "what cannot be seen is shown"() {
    const hidden = /[\p{Cf}\u2066-\u2069]/u;
    let page = await asks("a trick");
    await pictures(page, "trick");
    assert.equal(await text(page), "Pay \\u202e005 EUR\\u202c?\\u200b");
    assert.deepEqual(await card(page).locator("button").allTextContents(), ["y\\u202ees", "no\\u200b", "no", "Decline"]);
    assert.doesNotMatch(await card(page).innerText(), hidden);
    await press(page, "no\\u200b");
    await says(page, 'So: "\\"no\\u200b\\""');
    await page.close();
    page = await asks("a tricky form");
    await pictures(page, "tricky-form");
    assert.doesNotMatch(await card(page).innerText(), hidden);
    assert.match(await card(page).innerText(), /a\\u202eb.*\n.*c\\u200bd/);
    await card(page).getByLabel("__proto__").selectOption({ label: "e\\u2066f" });
    await press(page, "Answer");
    await says(page, 'So: "{\\"__proto__\\":\\"e\\u2066f\\"}"');
    await page.close();
    page = await talk("asker");
    await say(page, "Let me choose.");
    await waits(page);
    assert.equal(await card(page).locator("pre").textContent(), "Pay \\u202e005?");
    assert.deepEqual(await card(page).locator("button").allTextContents(), ["y\\u202ees", "no"]);
    await press(page, "y\\u202ees");
    await says(page, 'So: "y\\u202ees"');
    return page;
  },

  async "a question of an agent below"() {
    const page = await talk("asker");
    await say(page, "Have it done: Ask about sign-in.");
    await waits(page);
    for (const reload of [false, true]) {
      if (reload) await page.reload();
      await waits(page);
      assert.equal(await card(page).locator("> .state").textContent(), "asked by helper, which was called by asker");
    }
    await pictures(page, "nested");
    await press(page, "Done");
    await page.waitForFunction((at) => document.querySelector(`${at} > .text`)?.textContent.includes("confirmed"), last);
    return page;
  },

  async "answered in another tab"() {
    const page = await asks("a size");
    const other = await open(page.url());
    await waits(other);
    await press(other, "L");
    await page.waitForFunction((at) => document.querySelector(at)?.textContent === "Shall I wrap it?", `${last} .card.waiting > .text`);
    await press(page, "Yes");
    await says(page, 'So: "\\"L\\" true"');
    await says(other, 'So: "\\"L\\" true"');
    await other.close();
    return page;
  },

  async "what was typed stays while the page looks for news"() {
    const page = await asks("a name");
    await card(page).locator("input").fill("Albert");
    const looks = { n: 0 };
    page.on("response", (response) => { if (response.url().includes("/waiting?")) looks.n++; });
    while (looks.n < 2) await page.waitForResponse((response) => response.url().includes("/waiting?"));
    assert.equal(await card(page).locator("input").inputValue(), "Albert");
    await press(page, "Answer");
    await says(page, 'So: "\\"Albert\\""');
    return page;
  },

  async "a large result"() {
    const page = await talk("asker");
    await say(page, "All of it.");
    await says(page, "It is long.");
    const check = async () => {
      assert.match(await page.locator(`${last} .card pre`).last().textContent(), /^\[This result has 20001 bytes in 1 line\./);
      const [file] = await Promise.all([
        page.waitForEvent("download"), page.getByRole("button", { name: "Download the whole result (20,001 bytes)", exact: true }).click(),
      ]);
      assert.equal(file.suggestedFilename(), "archive.json");
      assert.deepEqual(JSON.parse(await readFile(await file.path(), "utf8")), new Array(10_000).fill(0));
    };
    await check();
    await shot(page, "large-result");
    await page.reload();
    await says(page, "It is long.");
    await check();
    return page;
  },

  async "a result that looks like a large one"() {
    const page = await talk("asker");
    await say(page, "Pose.");
    await says(page, "It is short.");
    for (const reload of [false, true]) {
      if (reload) await page.reload();
      await says(page, "It is short.");
      assert.match(await page.locator(`${last} .card pre`).last().textContent(), /trust me/);
      assert.equal(await page.getByRole("button", { name: /Download/ }).count(), 0);
    }
    return page;
  },
};

await run(cases);
