// A program with its own sign-in, and the page below a prefix of it: HELIX_URL.
import assert from "node:assert/strict";
import { browser, idle, last, open, reply, run, say, url } from "./harness.mjs";

const program = new URL(url).origin;
const dialog = (page) => page.locator("#login");

async function signIn(page, user, password) {
  await dialog(page).getByRole("link", { name: "Sign in" }).click();
  await page.locator("[name=user]").fill(user);
  await page.locator("[name=password]").fill(password);
  await page.getByRole("button").click();
}

await run({
  async "people sign in to the program, and come back to what they had opened"() {
    const page = await open(`${url}/#assistant/my-talk`, {});
    await dialog(page).waitFor();
    assert.equal(await page.locator("#token").isVisible(), false);
    assert.equal(await page.title(), "Assistant");
    await signIn(page, "ada", "engine");
    await page.waitForURL(`${url}/#assistant/my-talk`);
    await page.locator("#session", { hasText: "my-talk" }).waitFor();
    await say(page, "What is 6 * 7?");
    await idle(page);
    assert.notEqual(await reply(page), "");
    const said = await page.locator(last).innerText();
    await page.reload();
    await page.waitForFunction(([at, want]) => document.querySelector(at)?.innerText === want, [last, said]);

    const other = await open(url, {});
    await signIn(other, "grace", "compiler");
    await other.waitForURL(/\/assistant\/#assistant\//);
    assert.deepEqual(await other.evaluate(async () => (await (await fetch("sessions")).json()).items), []);
    const asked = other.waitForResponse((response) => response.url().includes("/chat/my-talk/messages"));
    await other.goto(`${url}/#assistant/my-talk`);
    assert.equal((await asked).status(), 404);
    assert.equal(await other.locator(".message").count(), 0);
    await other.close();

    await page.evaluate(() => sessionStorage.setItem("of the program", "stays"));
    await page.getByRole("button", { name: "Sign out" }).click();
    await dialog(page).waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.getItem("of the program")), "stays");
    assert.equal(await page.evaluate(async () => (await fetch("sessions")).status), 401);
    return page;
  },

  async "a link to the sign-in does not lead elsewhere"() {
    const context = await browser.newContext();
    const page = await context.newPage();
    page.complaints = [];
    for (const to of ["//example.com/", "https://example.com/", "/\\example.com", "/\t/example.com/", "/\n/example.com/", "javascript:alert(1)"]) {
      await page.goto(`${program}/login?return=${encodeURIComponent(to)}`);
      await page.locator("[name=user]").fill("ada");
      await page.locator("[name=password]").fill("engine");
      await page.getByRole("button").click();
      await page.getByText("Hello, ada.").waitFor();
      assert.equal(page.url(), `${program}/`);
    }
    return page;
  },
});
