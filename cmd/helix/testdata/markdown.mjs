// Markdown on the page in Chromium: HELIX_URL is a server with an agent, writer, that replies with HELIX_REPORT. In the middle it
// waits until this script says that the server may be restarted, which here means that it may go on.
import assert from "node:assert/strict";
import { idle, last, open, restart, run, say, shot, talk, url } from "./harness.mjs";

const report = process.env.HELIX_REPORT;
const whole = !process.env.HELIX_TEST_SHARE;
const [share, shares] = (process.env.HELIX_TEST_SHARE || "0/1").split("/").map(Number);

// load gives a page a function, window.draw, that shows markdown in pieces and returns what is shown, as HTML without what
// is the same for all; and the work that each piece took.
async function load(page) {
  await page.evaluate(async () => {
    const { Markdown } = await import("/page/markdown.js");
    window.Markdown = Markdown;
    window.brief = (node) => {
      const copy = node.cloneNode(true);
      copy.normalize();
      for (const a of copy.querySelectorAll("a")) {
        if (a.target !== "_blank" || a.rel !== "noopener noreferrer nofollow" || !a.title || a.dir !== "auto") throw new Error(a.outerHTML);
        for (const name of ["target", "rel", "title", "dir"]) a.removeAttribute(name);
      }
      for (const code of copy.querySelectorAll(".code")) code.replaceWith(Object.assign(document.createElement("pre"), { lang: code.querySelector("span").textContent, textContent: code.querySelector("code").textContent }));
      for (const box of copy.querySelectorAll(".table")) {
        if (box.tabIndex !== 0 || box.role !== "group" || box.ariaLabel !== "Table") throw new Error(box.outerHTML);
        if ([...box.querySelectorAll("th")].some((th) => th.scope !== "col")) throw new Error(box.outerHTML);
        box.replaceWith(box.firstChild);
      }
      for (const e of copy.querySelectorAll("[dir], [scope]")) for (const name of ["dir", "scope"]) if (e.dir !== "rtl") e.removeAttribute(name);
      for (const task of copy.querySelectorAll(".task")) task.replaceWith(task.textContent);
      copy.normalize();
      return copy.innerHTML;
    };
    window.draw = (pieces) => {
      const node = document.createElement("div");
      const markdown = new Markdown(node);
      let [whole, most] = ["", 0];
      let known = [];
      for (const piece of pieces) {
        const before = markdown.looked;
        whole += piece;
        markdown.write(whole);
        most = Math.max(most, markdown.looked - before - 4 * piece.length);
        if (node.childElementCount > 1000) continue;
        // Only the last line's block may change, and the one before it, which may be a table's head.
        known.slice(0, -2).forEach((child, i) => { if (node.children[i] !== child) throw new Error(`${child.outerHTML} was replaced: ${whole}`); });
        known = [...node.children];
      }
      return { html: window.brief(node), most, node };
    };
  });
}

// What is shown of a text.
const table = [
  ["", ""],
  ["Plain text.", "<p>Plain text.</p>"],
  ["one\ntwo  \nthree\\\nfour", "<p>one\ntwo\nthree\nfour</p>"],
  ["one\n\n\n two\r\n\r\nthree\r\nfour", "<p>one</p><p>two</p><p>three\nfour</p>"],
  ["    indented\n\tmore", "<p>indented\nmore</p>"],
  // Headings.
  ["# One\n## Two ##\n#### Four\n# Again #", "<h3>One</h3><h4>Two</h4><h5>Four</h5><h3>Again</h3>"],
  ["#hash\n\n####### seven\n\n#\n\n## a#\n\n## C# #", "<p>#hash</p><p>####### seven</p><p>#</p><h3>a#</h3><h3>C#</h3>"],
  ["Text\n## Heading *em*\nText\n---\nText\n===", "<p>Text</p><h3>Heading <em>em</em></h3><p>Text</p><hr><p>Text\n===</p>"],
  ["***\n- - -\n__ _\n--", "<hr><hr><hr><p>--</p>"],
  // Code.
  ["```js\nlet a = 1;\n\n  <b>&amp;</b>\n```\nafter", '<pre lang="js">let a = 1;\n\n  &lt;b&gt;&amp;amp;&lt;/b&gt;</pre><p>after</p>'],
  ["~~~\n```\n~~\n~~~~ \n", '<pre lang="">```\n~~</pre>'],
  ["text\n````md title=\"x\"\n```\n````", '<p>text</p><pre lang="md">```</pre>'],
  ["```\nunclosed\n\n", '<pre lang="">unclosed\n</pre>'],
  ["```", '<pre lang=""></pre>'],
  ["``` a`b", "<p>``` a`b</p>"],
  ["    ```\n    x\n      y\n    ```\nz", '<pre lang="">x\n  y</pre><p>z</p>'],
  ["```\n\ta\tb\n```", '<pre lang="">\ta\tb</pre>'],
  ["> ```\n> in\n> ```\n> out\n\nend", '<blockquote><pre lang="">in</pre><p>out</p></blockquote><p>end</p>'],
  ["> ```\nout", '<blockquote><pre lang=""></pre></blockquote><p>out</p>'],
  ["- ```\n  in\n\n  more\n  ```\n- b", '<ul><li><pre lang="">in\n\nmore</pre></li><li><p>b</p></li></ul>'],
  ["```\nzero\u200bwidth \u202e ⚠\ufe0f x\ufe0f 👨‍💻 👩🏽‍💻 می\u200cخواهم a\u200cb\r\n1\r2\n```", '<pre lang="">zero\\u200bwidth \\u202e ⚠\ufe0f x\\ufe0f 👨‍💻 👩🏽‍💻 می\u200cخواهم a\\u200cb\n1\\u000d2</pre>'],
  ["```\n👍", '<pre lang="">👍</pre>'],
  // Quotes.
  ["> a\nb\n>c\n\n> d", "<blockquote><p>a\nb\nc</p></blockquote><blockquote><p>d</p></blockquote>"],
  ["> a\n>\n> - b\n>\n>   c\n>\n> d\n\n- > a\n  >\n  > b\n- c", '<blockquote><p>a</p><ul class="loose"><li><p>b</p><p>c</p></li></ul><p>d</p></blockquote><ul><li><blockquote><p>a</p><p>b</p></blockquote></li><li><p>c</p></li></ul>'],
  ["> a\n> > b\n> - c\n> # d", "<blockquote><p>a</p><blockquote><p>b</p></blockquote><ul><li><p>c</p></li></ul><h3>d</h3></blockquote>"],
  // Lists.
  ["- a\n- b\n  c\n- \n- d", "<ul><li><p>a</p></li><li><p>b\nc</p></li><li></li><li><p>d</p></li></ul>"],
  ["- a\n\n- b", '<ul class="loose"><li><p>a</p></li><li><p>b</p></li></ul>'],
  ["- a\n\n  b\n- c", '<ul class="loose"><li><p>a</p><p>b</p></li><li><p>c</p></li></ul>'],
  ["- a\n  - b\n\n  - c\n- d\n", '<ul><li><p>a</p><ul class="loose"><li><p>b</p></li><li><p>c</p></li></ul></li><li><p>d</p></li></ul>'],
  ["- a\n* b\n+ c", "<ul><li><p>a</p></li></ul><ul><li><p>b</p></li></ul><ul><li><p>c</p></li></ul>"],
  ["3. a\n4. b\n   1) c\n5. d", '<ol start="3"><li><p>a</p></li><li><p>b</p><ol><li><p>c</p></li></ol></li><li><p>d</p></li></ol>'],
  ["1. a\n  - b\n    - c\n2. d", "<ol><li><p>a</p><ul><li><p>b</p><ul><li><p>c</p></li></ul></li></ul></li><li><p>d</p></li></ol>"],
  ["1. a\n   ```\n   x\n   ```\n2. b", '<ol><li><p>a</p><pre lang="">x</pre></li><li><p>b</p></li></ol>'],
  ["It was in\n1998. A year\n- yes\n1. no", "<p>It was in\n1998. A year</p><ul><li><p>yes</p></li></ul><ol><li><p>no</p></li></ol>"],
  ["-a\n1.b\n+", "<p>-a\n1.b\n+</p>"],
  ["- a\nb\n\nc", "<ul><li><p>a\nb</p></li></ul><p>c</p>"],
  ["- [ ] to do\n- [x] done\n- [x]no\n- text [x] no", "<ul><li><p>☐ to do</p></li><li><p>☑ done</p></li><li><p>[x]no</p></li><li><p>text [x] no</p></li></ul>"],
  ["- # h\n- > q\n- - x\n-\n  late", "<ul><li><h3>h</h3></li><li><blockquote><p>q</p></blockquote></li><li><ul><li><p>x</p></li></ul></li><li><p>late</p></li></ul>"],
  ["-\ttab\n\n\tinside", '<ul class="loose"><li><p>tab</p><p>inside</p></li></ul>'],
  // Tables.
  ["| a | b |\n|---|:-:|\n| 1 | 2 |\n\nend", '<table><thead><tr><th>a</th><th class="center">b</th></tr></thead><tbody><tr><td>1</td><td class="center">2</td></tr></tbody></table><p>end</p>'],
  ["intro\na | b\n-|-:\n*x* | `y\\|z` | more\n| only", '<p>intro</p><table><thead><tr><th>a</th><th class="end">b</th></tr></thead><tbody><tr><td><em>x</em></td><td class="end"><code>y|z</code> | more</td></tr><tr><td>only</td></tr></tbody></table>'],
  ["| a |\n|---|\n| b<br>c<br/>d |\ntext\n| e |", "<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>b\nc\nd</td></tr></tbody></table><p>text\n| e |</p>"],
  ["| a | b |\n|---|\n", "<p>| a | b |\n|---|</p>"],
  ["- | a |\n  |---|\n  | b |\n- c", "<ul><li><table><thead><tr><th>a</th></tr></thead><tbody><tr><td>b</td></tr></tbody></table></li><li><p>c</p></li></ul>"],
  ["| a |\n|---|\n- | b |\n", "<table><thead><tr><th>a</th></tr></thead><tbody></tbody></table><ul><li><p>| b |</p></li></ul>"],
  // Emphasis, as the examples of CommonMark.
  ["*a* **b** ***c*** ~~d~~ _e_ __f__", "<p><em>a</em> <strong>b</strong> <em><strong>c</strong></em> <del>d</del> <em>e</em> <strong>f</strong></p>"],
  ["a * b * c, 6 * 7, 2*3*4, snake_case_name, ~5, ~a~, \\*no\\*", "<p>a * b * c, 6 * 7, 2<em>3</em>4, snake_case_name, ~5, ~a~, *no*</p>"],
  ["**a *b* c** *a **b** c* **a *b** c*", "<p><strong>a <em>b</em> c</strong> <em>a <strong>b</strong> c</em> <em><em>a <em>b</em></em> c</em></p>"],
  ["*foo**bar**baz* ***foo** bar* *foo****bar", "<p><em>foo<strong>bar</strong>baz</em> <em><strong>foo</strong> bar</em> <em>foo</em>***bar</p>"],
  ["**重要：**内容 和 *强调*。", "<p><strong>重要：</strong>内容 和 <em>强调</em>。</p>"],
  ["**open and *closed*", "<p>**open and <em>closed</em></p>"],
  ["**a\nb**\n\n**c\n\nd**", "<p><strong>a\nb</strong></p><p>**c</p><p>d**</p>"],
  // Code in a line.
  ["`a` ``b`c`` ` d ` `*e*` `open", "<p><code>a</code> <code>b`c</code> <code>d</code> <code>*e*</code> `open</p>"],
  ["`a\nb` \\`c` `<b>` `\u202e`", "<p><code>a b</code> `c<code> </code>&lt;b&gt;<code> </code>\u202e`</p>"],
  // Links.
  ["[a](https://b.example/c) [*d*](<https://e.example/> \"f\") [g]( h )", '<p><a href="https://b.example/c">a</a> <a href="https://e.example/"><em>d</em></a> [g]( h )</p>'],
  ["[a](https://b.example/(c)_d) [x](https://b.example/\\)y) [m](mailto:a@b.example)", '<p><a href="https://b.example/(c)_d">a</a> <a href="https://b.example/)y">x</a> <a href="mailto:a@b.example">m</a></p>'],
  ["[a [b](https://c.example) d](https://e.example)", '<p>[a <a href="https://c.example/">b</a> d](<a href="https://e.example/">https://e.example</a>)</p>'],
  ["<https://a.example/?b=1&amp;c> <a@b.example> <b>", '<p><a href="https://a.example/?b=1&amp;amp;c">https://a.example/?b=1&amp;amp;c</a> <a href="mailto:a@b.example">a@b.example</a> &lt;b&gt;</p>'],
  ["See https://a.example/b_c_d(e). (https://f.example/g) **https://h.example** xhttps://i.example https://", '<p>See <a href="https://a.example/b_c_d(e)">https://a.example/b_c_d(e)</a>. (<a href="https://f.example/g">https://f.example/g</a>) <strong><a href="https://h.example/">https://h.example</a></strong> xhttps://i.example https://</p>'],
  ["[](https://a.example/b)", '<p><a href="https://a.example/b">https://a.example/b</a></p>'],
  ["[r](/rel) [s](#x) foo[0](bar) [t](javascript:alert(1))", "<p>[r](/rel) [s](#x) foo[0](bar) [t](javascript:alert(1))</p>"],
  ["![alt](https://a.example/p.png) ![](https://a.example/p.png) ![d](data:image/png;base64,AAAA)", '<p><a href="https://a.example/p.png">alt<small> (a.example)</small></a> <a href="https://a.example/p.png">picture<small> (a.example)</small></a> ![d](data:image/png;base64,AAAA)</p>'],
  ["[![build](https://i.example/b.svg)](https://ci.example/)", '<p><a href="https://ci.example/">build</a></p>'],
  // Links that say they lead elsewhere.
  ["[google.com→Sign in](https://evil.example/)", '<p><a href="https://evil.example/">google.com→Sign in<small> (evil.example)</small></a></p>'],
  ["[google.com:login](https://evil.example/)", '<p><a href="https://evil.example/">google.com:login<small> (evil.example)</small></a></p>'],
  ["[google.com;x](https://evil.example/)", '<p><a href="https://evil.example/">google.com;x<small> (evil.example)</small></a></p>'],
  ["[google.com&x](https://evil.example/)", '<p><a href="https://evil.example/">google.com&amp;x<small> (evil.example)</small></a></p>'],
  ["[google.com@x](https://evil.example/)", '<p><a href="https://evil.example/">google.com@x<small> (evil.example)</small></a></p>'],
  ["[www.google.com»account](https://evil.example/)", '<p><a href="https://evil.example/">www.google.com»account<small> (evil.example)</small></a></p>'],
  ["[google.com‑login](https://evil.example/)", '<p><a href="https://evil.example/">google.com‑login<small> (evil.example)</small></a></p>'],
  ["[google․com](https://evil.example/)", '<p><a href="https://evil.example/">google․com<small> (evil.example)</small></a></p>'],
  ["[localhost:4170/x](https://evil.example/)", '<p><a href="https://evil.example/">localhost:4170/x<small> (evil.example)</small></a></p>'],
  ["[good.example@evil.example](https://evil.example/)", '<p><a href="https://evil.example/">good.example@evil.example<small> (evil.example)</small></a></p>'],
  ["[mail us](mailto:us@a.example?bcc=x@evil.example)", '<p><a href="mailto:us@a.example?bcc=x@evil.example">mail us<small> (us@a.example?bcc=x@evil.example)</small></a></p>'],
  ["[a.example/readme.md](https://a.example/readme.md) [Sign in](https://a.example/)", '<p><a href="https://a.example/readme.md">a.example/readme.md</a> <a href="https://a.example/">Sign in</a></p>'],
  ["[https://good.example/](https://evil.example/)", '<p><a href="https://evil.example/">https://good.example/<small> (evil.example)</small></a></p>'],
  ["[Sign in at Good.Example/login now](https://evil.example/)", '<p><a href="https://evil.example/">Sign in at Good.Example/login now<small> (evil.example)</small></a></p>'],
  ["[good.example/a.b](https://good.example/a.b) [here](https://x.example)", '<p><a href="https://good.example/a.b">good.example/a.b</a> <a href="https://x.example/">here</a></p>'],
  ["https://аpple.example/ [a](https://u:p@b.example) https://u:p@b.example", '<p><a href="https://xn--pple-43d.example/">https://аpple.example/<small> (xn--pple-43d.example)</small></a> [a](https://u:p@b.example) https://u:p@b.example</p>'],
  ["[write to me@good.example](mailto:me@evil.example)", '<p><a href="mailto:me@evil.example">write to me@good.example<small> (me@evil.example)</small></a></p>'],
  ["[a\u202eb\u200b](https://c.example/)", '<p><a href="https://c.example/">a\\u202eb\\u200b</a></p>'],
  // The rest.
  ["&lt;b&gt; &amp;amp; &quot; &#39; &nbsp; &copy; &#x202e;", "<p>&lt;b&gt; &amp;amp; \" ' &nbsp; &amp;copy; &amp;#x202e;</p>"],
  ["<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n<!-- c -->", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p><p>&lt;img src=x onerror=alert(1)&gt;\n&lt;!-- c --&gt;</p>"],
  ["\\# a \\[b\\] \\\\ \\x \\", "<p># a [b] \\ \\x \\</p>"],
  ["שלום *עולם* \u202eabc", "<p>שלום <em>עולם</em> \u202eabc</p>"],
  ["- 1 א\n  - b\n\nb\n\n> b\n> א", '<ul dir="rtl"><li><p>1 א</p><ul><li><p>b</p></li></ul></li></ul><p>b</p><blockquote><p>b\nא</p></blockquote>'],
  ["- | a |\n  |---|\n  א |", "<ul><li><table><thead><tr><th>a</th></tr></thead><tbody><tr><td>א</td></tr></tbody></table></li></ul>"],
  [">".repeat(20) + "x\n" + "- ".repeat(20) + "y", "<blockquote>".repeat(16) + "<p>&gt;&gt;&gt;&gt;x</p>" + "</blockquote>".repeat(16) + "<ul><li>".repeat(16) + "<p>- - - - y</p>" + "</li></ul>".repeat(16)],
  ["*a **b ".repeat(20) + "c" + "** d*".repeat(20), undefined],
  ["x".repeat(7990) + " *no end* of it 👍👍 **a**\nb\n\n*c*", `<p>${"x".repeat(7990)} <em>no end</em> of it 👍👍 **a**\nb</p><p><em>c</em></p>`],
  ["# " + "y *z* ".repeat(2000) + "\n- " + " ".repeat(9000) + "a *b*\n\nend", undefined],
  ["```\n" + "1".repeat(9000) + "\n" + "`".repeat(9000) + "\n```\nend", `<pre lang="">${"1".repeat(9000)}\n${"`".repeat(9000)}</pre><p>end</p>`],
];

const evil = [
  "<script>window.ran = 1</script>", "<img src=https://pictures.example.net/a.png onerror='window.ran=1'>", "<iframe src=https://frames.example.net></iframe>",
  "<svg onload=window.ran=1>", "<a href='javascript:window.ran=1'>a</a>", "<style>@import 'https://styles.example.net/';</style>", "<link rel=stylesheet href=https://styles.example.net>",
  "<base href=https://base.example.net>", "<meta http-equiv=refresh content='0;url=https://meta.example.net'>", "<form action=https://forms.example.net><button>b</button></form>",
  "![a](https://pictures.example.net/b.png)", "![a](//pictures.example.net/c.png)", "![a](data:image/svg+xml,<svg onload='window.ran=1'/>)",
  ...["javascript:window.ran=1", "JaVaScRiPt:window.ran=1", "javascript&colon;window.ran=1", "&#106;avascript:window.ran=1", "java&#x0A;script:window.ran=1", "\u0001javascript:window.ran=1",
    "java\tscript:window.ran=1", "java\u200bscript:window.ran=1", "javascript\\:window.ran=1", "vbscript:window.ran=1", "data:text/html,<script>window.ran=1</script>", "DATA:text/html;base64,PHNjcmlwdD4=",
    "file:///etc/passwd", "blob:https://a.example/b", "//evil.example", "https://good.example@evil.example/", "view-source:https://a.example", "intent:a", "about:blank", "filesystem:x"]
    .flatMap((target) => [`[a](${target})`, `[a](<${target}>)`, `<${target}>`, `![a](${target})`, `[a](${target} "b")`]),
  "[a](https://b.example \" onclick=window.ran=1 \")", "```\" onclick=\"window.ran=1\nx\n```", "| <script>window.ran=1</script> |\n|---|\n| <img src=x onerror=window.ran=1> |",
];

// Texts that are meant to be much work, of 100,000 characters and more.
const long = {
  ...Object.fromEntries([..."*_~`[]()<>!#|\\&-+=:.1\"' \t\n\r\0\u202e\u200b"].map((c) => [JSON.stringify(c), c.repeat(100_000)])),
  ...Object.fromEntries(["*a ", "**a ", "a* ", "*a_ ", "[a](", "[a](<", "[a](https:", "[a](https:b \"", "![", "[a](https:b)", "`a``", "<a", "<https://a", "https://a.b)", "a@b.c ", "\\[", "&amp", "> ", "- ", "1. ", "- a\n", "-\n", ">\n\n", "1. a\n\n", "# a\n", "***\n", "```\n", "~~~\na\n",
    "| a | b |\n", "a|b\n-|-\n", "|\n", "(((((", "](https://a.b)", "*_~~`[", "a\n", "  ", "*\u4e2d", "👍", "\ud83d", "~~a", "- - ", "1) - > "].map((c) => [JSON.stringify(c), c.repeat(Math.ceil(100_000 / c.length))])),
  "1 MB of nested lists": Array.from({ length: 1200 }, (_, i) => " ".repeat(2 * (i % 400)) + "- a *b* `c`\n").join("").repeat(3).slice(0, 1 << 20).padEnd(1 << 20, "- a\n"),
  "deeper and deeper": Array.from({ length: 400 }, (_, i) => " ".repeat(2 * i) + "- a\n").join(""),
  "10,000 columns": `${"|a".repeat(10_000)}|\n${"|-".repeat(10_000)}|\n${"|b".repeat(10_000)}|\n`,
  "2,000 columns": `${"|a".repeat(2_000)}|\n${"|-".repeat(2_000)}|\n${"|b".repeat(2_000)}|\n`,
  "many rows of many columns": `${"|a".repeat(64)}|\n${"|-".repeat(64)}|\n${"|\n".repeat(50_000)}`,
  "links with many dots": `[a${".".repeat(7_800)}b](https://x.example) `.repeat(13),
  "nested parentheses": "[a](https:".repeat(2_000) + ")".repeat(8_000),
  "nested brackets": "[".repeat(3_000) + "a" + "](https://b.example)".repeat(3_000),
};

const most = 48_000; // characters that the renderer may look at again for a token, however long the reply is and whatever it has

// watched opens a page that records what it asks for, and what its policy has prevented.
async function watched(options) {
  const page = await open(url, options);
  await page.locator("#agents button").first().waitFor();
  page.asked = [];
  page.on("request", (request) => page.asked.push(request.url()));
  page.on("dialog", (dialog) => (page.complaints.push(dialog.message()), dialog.dismiss()));
  page.context().on("page", (other) => page.complaints.push(`${other.url()} was opened`));
  await page.evaluate(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.blockedURI + event.violatedDirective));
  });
  await load(page);
  return page;
}

async function harmless(page) {
  assert.deepEqual(await page.evaluate(() => [window.ran, window.violations, document.title, location.pathname]), [undefined, [], "Helix", "/"]);
  assert.deepEqual(page.asked.filter((address) => !address.startsWith(`${url}/`)), []);
}

// shows waits until the reply has a text.
const shows = (page, text) => page.waitForFunction(([at, want]) => document.querySelector(at)?.textContent.includes(want), [last, text]);

const cases = {
  async "a reply"() {
    const page = await talk("writer", { permissions: ["clipboard-read", "clipboard-write"], viewport: { width: 1100, height: 1250 } });
    await load(page);
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    const typed = "# The *report*,\n\n- please <b>now</b>";
    await page.locator("#text").fill(typed);
    await page.locator("#text").press("Enter");
    await shows(page, "of towns");
    assert.ok(await page.locator("#stop").isVisible()); // it is not the end
    const text = page.locator(`${last} > .text`);
    const half = report.slice(0, report.indexOf("> **Note"));
    const shown = () => text.evaluate((node) => window.brief(node));
    assert.equal(await shown(), await page.evaluate((half) => window.draw([half]).html, half));
    assert.equal(await page.locator(".message.user").textContent(), typed); // what was typed stays as it is
    assert.equal(await page.locator(".message.user .text *").count(), 0);
    await shot(page, "markdown-streaming");

    // What is copied is the code, to the letter.
    const code = page.locator(`${last} .code`).first();
    const raw = 'func main() {\n\tfmt.Println("<b>42</b>") // a comment that is longer than the screen is wide, so that the box has to scroll\n}';
    assert.equal(await code.locator(".head span").textContent(), "go");
    const copy = code.getByRole("button", { name: "Copy code" });
    await copy.click();
    await page.waitForFunction(() => document.getElementById("live").textContent === "Copied.");
    assert.equal(await copy.textContent(), "Copied");
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), raw);

    // What is selected and what has the focus stay while more arrives, and so does every block.
    await page.evaluate((at) => {
      const [paragraph] = document.querySelectorAll(`${at} > .text > p`);
      getSelection().setBaseAndExtent(paragraph.firstChild, 2, paragraph.querySelector("em").firstChild, 3);
      window.kept = [...document.querySelectorAll(`${at} > .text > *`)];
      window.said = getSelection().toString();
    }, last);
    await copy.focus();
    await restart();
    await idle(page);
    const [kept, said, focused] = await page.evaluate((at) => {
      const now = document.querySelectorAll(`${at} > .text > *`);
      return [window.kept.every((e, i) => now[i] === e), [window.said, getSelection().toString()], document.activeElement.ariaLabel];
    }, last);
    assert.ok(kept);
    assert.deepEqual([said[0], focused], ["les are up 12%, and ret", "Copy code"]);
    assert.equal(said[1], said[0]);

    for (const reload of [false, true]) {
      if (reload) {
        await page.reload();
        await load(page);
        await shows(page, "That is all.");
      }
      assert.equal(await shown(), await page.evaluate((report) => window.draw([report]).html, report));
      assert.equal(await page.locator(`${last} .reasoning .text`).evaluate((node) => window.brief(node)), "<p>First the <strong>numbers</strong>, then <code>code</code>.</p>");
    }
    assert.deepEqual(await page.locator(`${last} :is(h1, h2, h3, h4, h5, h6)`).evaluateAll((all) => all.map((e) => e.tagName + e.textContent)), ["H3The week in numbers", "H4By region"]);
    assert.deepEqual(await page.getByRole("columnheader").allTextContents(), ["Region", "Orders", "Change", "Remark"]);

    // What is wide scrolls by itself, with the keyboard as well.
    await page.locator("#transcript").evaluate((e) => (e.scrollTop = 0));
    await shot(page, "markdown-light");
    await page.emulateMedia({ colorScheme: "dark" });
    await shot(page, "markdown-dark");
    await page.setViewportSize({ width: 390, height: 740 });
    await shot(page, "markdown-phone");
    const [inner, outer] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    assert.ok(inner <= outer, `the page is ${inner} wide on a screen of ${outer}`);
    assert.deepEqual(await page.locator(`${last} :is(.table, .code pre)`).evaluateAll((all) => all.slice(0, 2).map((e) => [e.scrollWidth > e.clientWidth, e.tabIndex])), [[true, 0], [true, 0]]);
    const right = await page.locator(`${last} > .text`).evaluate((e) => [...e.querySelectorAll(":scope > *")].every((child) => child.getBoundingClientRect().right <= e.getBoundingClientRect().right + 1));
    assert.ok(right, "something reaches beyond the message");
    assert.deepEqual(asked.filter((address) => !address.startsWith(`${url}/`)), []);

    // Where there is no clipboard, the code is selected.
    await page.evaluate(() => Object.defineProperty(navigator, "clipboard", { value: undefined }));
    await copy.click();
    await page.waitForFunction(() => document.getElementById("live").textContent === "Selected.");
    assert.equal(await page.evaluate(() => getSelection().toString()), raw);
    return page;
  },

  async "text that runs from right to left"() {
    const page = await watched({});
    // Where each letter is, from left to right.
    const order = (text) => page.evaluate((text) => {
      const { node } = window.draw([text]);
      node.className = "text markdown";
      document.getElementById("messages").replaceChildren(node);
      const letters = [];
      const walk = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
      for (let at = walk.nextNode(); at; at = walk.nextNode()) {
        if (at.parentNode.closest(".head")) continue;
        for (let i = 0; i < at.length; i++) {
          if (!/[\p{L}\p{N}]/u.test(at.data[i])) continue;
          const range = document.createRange();
          range.setStart(at, i);
          range.setEnd(at, i + 1);
          const { left, top, bottom } = range.getBoundingClientRect();
          letters.push({ letter: at.data[i], left, top: Math.round((top + bottom) / 30) });
        }
      }
      return letters.sort((a, b) => a.top - b.top || a.left - b.left).map(({ letter }) => letter).join("");
    }, text);
    assert.equal(await order("abc"), "abc");
    assert.equal(await order("\u202eabc\n\nabc"), "cbaabc"); // what turns letters round ends with its paragraph
    assert.equal(await order("- \u202eabc\n- abc"), "cbaabc");
    assert.equal(await order("| \u202eab | cd |\n|-|-|\n| ef | gh |"), "bacdefgh");
    assert.equal(await order("\u2066\u202eab `cd` [ef](https://g.example)"), "efcdba"); // code and links read as they are wherever they stand
    assert.equal(await order("`\u202eab` cd"), "u202eabcd");
    assert.equal(await order("[\u202eab](https://g.example) cd"), "u202eabcd");
    assert.equal(await order("```\n\u202eab\n```\n\ncd"), "u202eabcd");
    assert.equal(await order("אב גד"), "דגבא");
    const ends = await page.evaluate(() => {
      const { node } = window.draw(["אב\n\n- אב\n\nab"]);
      node.className = "text markdown";
      document.getElementById("messages").replaceChildren(node);
      return [...node.querySelectorAll("p")].map((p) => {
        const range = document.createRange();
        range.selectNodeContents(p);
        return range.getBoundingClientRect().left > p.getBoundingClientRect().left + 10 ? "right" : "left";
      });
    });
    assert.deepEqual(ends, ["right", "right", "left"]);
    await harmless(page);
    return page;
  },

  async "what is shown of a text"() {
    const page = await watched({});
    const wrong = await page.evaluate(({ all, times, first }) => {
      const wrong = [];
      let seed = first;
      const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
      for (const [i, [text, want]] of all.entries()) {
        const { html } = window.draw([text]);
        if (want !== undefined && html !== want) wrong.push({ text, html, want });
        const splits = [];
        if (times > 5 || i % 4 === first % 4) splits.push([...Array(text.length).keys()].slice(1)); // character by character
        if (text.length > 1000 && splits[0]) splits[0] = splits[0].filter((at) => at < 30 || Math.abs(at - 8000) < 40 || at > text.length - 60);
        for (let i = 0; i < times; i++) splits.push(Array.from({ length: random(8) }, () => random(text.length + 1)).sort((a, b) => a - b));
        for (const at of splits) {
          const pieces = [...at, text.length].map((end, i) => text.slice(at[i - 1] ?? 0, end));
          const { html: streamed } = window.draw(pieces);
          if (streamed !== html) {
            wrong.push({ text: text.slice(0, 200), pieces: pieces.slice(0, 40), streamed: streamed.slice(0, 400), html: html.slice(0, 400) });
            break;
          }
        }
      }
      return wrong;
    }, { all: table, times: whole ? 20 : 3, first: share + 1 });
    assert.equal(wrong.length, 0, wrong.map((one) => JSON.stringify(one, null, 1)).join("\n"));
    // All of them together, one after the other in one element: each is another text, which is shown anew.
    const again = await page.evaluate((all) => {
      const node = document.createElement("div");
      const markdown = new window.Markdown(node);
      return all.filter(([text]) => (markdown.write(text), window.brief(node) !== window.draw([text]).html)).map(([text]) => text);
    }, table);
    assert.deepEqual(again, []);
    await harmless(page);
    return page;
  },

  async "any text, in any pieces"() {
    const page = await watched({});
    const wrong = await page.evaluate(({ runs, first }) => {
      const atoms = ["a", "b ", "\n", "\n\n", "  ", "    ", "- ", "* ", "1. ", "2) ", "> ", "# ", "## ", "```", "```\n", "~~~", "`", "``", "*", "**", "_", "__", "~~", "[", "]", "(", ")", "](https://a.example)",
        "![", "<", ">", "https://c.example", "|", "|a|b|\n", "|-|-|\n", "a|b", "-|-", "---", "===", "\t", "\r", "\r\n", "\\", "&amp;", "א", "👍", "\ufe0f", "\u200d", "💻", "م", "\u200c", "\u202e", "[ ] ", "[x] ", "中",
        "。", "<br>", "1", ".", ":", "x".repeat(500), " ".repeat(300), "-".repeat(400)];
      let seed = first;
      const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
      for (let run = 0; run < runs; run++) {
        const some = Array.from({ length: 4 + random(12) }, () => atoms[random(atoms.length)]);
        const text = Array.from({ length: 3 + random(random(8) ? 22 : 120) }, () => (random(4) ? some[random(some.length)] : atoms[random(atoms.length)])).join("");
        const pieces = [];
        const longest = text.length > 1500 ? 1 + random(97) : 1 + random(4);
        for (let at = 0; at < text.length; at += pieces.at(-1).length) pieces.push(text.slice(at, at + 1 + random(longest)));
        const once = window.draw([text]).html;
        const { html, most } = window.draw(pieces);
        if (html !== once || most > 48_000) return { text, pieces, html, once, most };
      }
      return undefined;
    }, { runs: whole ? 5_000 : 100, first: whole ? 1 + Math.floor(Math.random() * 1e9) : share + 1 });
    assert.equal(wrong, undefined, JSON.stringify(wrong, null, 1));
    return page;
  },

  async "hostile texts"() {
    const page = await watched({});
    const { found, tags } = await page.evaluate(async ({ texts, whole }) => {
      const tags = new Set();
      const found = [];
      for (const text of [...texts, texts.join("\n\n"), texts.map((one) => `- ${one}\n`).join(""), texts.map((one) => `> ${one}\n`).join("\n")]) {
        for (const pieces of [[text], whole || text.length < 1000 ? [...text] : text.match(/.{1,99}/gsu)]) {
          const { node } = window.draw(pieces);
          document.getElementById("messages").append(node);
          for (const e of node.querySelectorAll("*")) {
            tags.add(e.tagName);
            for (const { name } of e.attributes) if (/^on|^(src|srcset|style|action|formaction|background|poster|data|id|name)$/.test(name)) found.push(e.outerHTML);
            if (e.tagName === "A" && !/^(https?|mailto):/.test(e.getAttribute("href"))) found.push(e.outerHTML);
            if (e.tagName === "A" && (e.target !== "_blank" || e.rel !== "noopener noreferrer nofollow")) found.push(e.outerHTML);
          }
          node.querySelectorAll("a").forEach((a) => /^(?!https?:\/\/\S+$|mailto:)/.test(a.href) && found.push(a.outerHTML));
        }
      }
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      return { found, tags: [...tags].sort() };
    }, { texts: evil, whole });
    assert.deepEqual(found, []);
    assert.deepEqual(tags, ["A", "BLOCKQUOTE", "BUTTON", "CODE", "DIV", "LI", "P", "PRE", "SMALL", "SPAN", "TABLE", "TBODY", "TD", "TH", "THEAD", "TR", "UL"]);
    await harmless(page);
    return page;
  },

  async "a long reply"() {
    const page = await watched({});
    const tenths = await page.evaluate(({ text, token }) => {
      const node = document.createElement("div");
      const markdown = new window.Markdown(node);
      const observer = new MutationObserver(() => {});
      observer.observe(node, { subtree: true, childList: true, characterData: true, attributes: true });
      const tenths = Array.from({ length: 10 }, () => ({ looked: 0, changes: 0 }));
      for (let at = token; at <= text.length; at += token) {
        const before = markdown.looked;
        markdown.write(text.slice(0, at));
        const tenth = tenths[Math.min(9, Math.floor((10 * at) / text.length))];
        const changes = observer.takeRecords().reduce((n, { addedNodes, removedNodes }) => n + 1 + addedNodes.length + removedNodes.length, 0);
        tenth.looked = Math.max(tenth.looked, markdown.looked - before);
        tenth.changes = Math.max(tenth.changes, changes);
      }
      return tenths;
    }, { text: `${report}\n`.repeat(100).slice(0, whole ? 190_000 : 30_000), token: 5 });
    // The end costs no more than the beginning, in characters that are looked at and in nodes that change.
    const [first] = tenths;
    assert.ok(first.looked < 1500 && first.changes < 100, JSON.stringify(first));
    assert.ok(tenths.every(({ looked, changes }) => looked <= first.looked && changes <= first.changes), JSON.stringify(tenths));
    // What is longer than the limit is cut, and the rest is counted.
    assert.deepEqual(await page.evaluate(() => {
      const node = document.createElement("div");
      const markdown = new window.Markdown(node);
      const ends = [];
      for (const more of [0, 1, 5_000]) {
        markdown.write(`*a*\n\n${"b\n\n".repeat(70_000).slice(0, 199_995 + more)}`);
        ends.push([node.firstChild.innerHTML, node.lastChild.textContent, markdown.looked]);
      }
      return ends.map(([begin, end, looked]) => [begin, end, looked === ends[0][2]]);
    }), [["<em>a</em>", "b", true], ["<em>a</em>", "… and 1 more characters", true], ["<em>a</em>", "… and 5,000 more characters", true]]);
    await harmless(page);
    return page;
  },

  async "work for a token is bounded"() {
    const page = await watched({});
    // The texts arrive in twenty pieces, and the characters behind each of them one by one.
    for (const [name, all] of Object.entries(long).filter((_, i) => whole || i % shares === share)) {
      const text = whole ? all : all.slice(0, 20_000);
      const result = await page.evaluate((text) => {
        const pieces = [];
        const step = Math.max(1, Math.ceil(text.length / 20));
        for (let at = 0; at < text.length; at += step) pieces.push(...text.slice(at, at + 8), text.slice(at + 8, at + step));
        const since = performance.now();
        const { most, html, node } = window.draw(pieces);
        const milliseconds = Math.round(performance.now() - since);
        let deep = 0;
        for (let [at, depth] = [node.firstElementChild, 1]; at; ) {
          deep = Math.max(deep, depth);
          if (at.firstElementChild) [at, depth] = [at.firstElementChild, depth + 1];
          else {
            while (at && !at.nextElementSibling) [at, depth] = [at.parentNode === node ? null : at.parentNode, depth - 1];
            at &&= at.nextElementSibling;
          }
        }
        return { most, deep, same: window.draw([text]).html === html, elements: node.querySelectorAll("*").length, milliseconds };
      }, text);
      if (process.env.HELIX_TEST_WORK) console.log(`${JSON.stringify(result)} ${name}`);
      assert.ok(result.same, `${name} depends on how it arrives`);
      assert.ok(result.most <= most, `${name}: ${result.most} characters for one piece`);
      assert.ok(result.deep < 60 && result.elements <= 250_000, `${name}: ${result.elements} elements, ${result.deep} deep`);
    }
    await harmless(page);
    return page;
  },
};

await run(cases);
