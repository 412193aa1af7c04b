// What is inside a block of markdown: code, emphasis, links. The work is linear in the length of the text.
import { element } from './dom.js';
import { visible } from './exact.js';

const deepest = 16; // elements inside each other; text that is deeper has no style of its own
const longestTarget = 2_000; // characters of a link's target
const mostInside = 8; // parentheses inside each other in a target

// inlines returns the nodes of a block's text. Nothing in the text can become markup other than that of this file, and
// nothing is loaded: pictures are links. It adds the characters that it looks at to tally.looked. In a cell of a table,
// <br> begins a new line, because there is no other way to write one.
export function inlines(text, tally, { cell = false } = {}) {
  const parser = new Parser(text, tally, cell);
  parser.read();
  return build(parser.tokens);
}

// Parser makes tokens of a text, as the specification of CommonMark describes. A token is a text, code, a link's
// beginning or end, or a run of delimiters that knows what begins and ends at it.
class Parser {
  constructor(text, tally, cell) {
    // White space before the end of a line says that the line ends there, which all ends of lines do here.
    this.text = text.split('\n').map((line, i, all) => (i < all.length - 1 ? line.trimEnd() : line)).join('\n');
    Object.assign(this, { tally, cell, tokens: [], plain: '', at: 0, brackets: [], last: undefined, missing: {} });
  }

  read() {
    const { text } = this;
    const special = /[\\`*_~[\]<&]|!\[|https?:\/\//gi;
    this.tally.looked += 2 * text.length;
    while (this.at < text.length) {
      special.lastIndex = this.at;
      const found = special.exec(text);
      this.plain += text.slice(this.at, found?.index);
      if (!found) break;
      this.at = found.index;
      this.special(found[0]);
    }
    this.flush();
    this.pair(undefined);
  }

  special(what) {
    switch (what) {
      case '\\':
        return this.escape();
      case '`':
        return this.code();
      case '*':
      case '_':
      case '~':
        return this.delimiters(what);
      case '[':
      case '![':
        this.flush();
        this.brackets.push({ token: this.tokens.length, picture: what === '![', active: true, below: this.last });
        this.tokens.push({ text: what });
        this.at += what.length;
        return undefined;
      case ']':
        return this.close();
      case '<':
        return this.angle();
      case '&':
        return this.entity();
      default:
        return this.address();
    }
  }

  // take matches a sticky expression here, and goes on behind it.
  take(expression) {
    expression.lastIndex = this.at;
    const found = expression.exec(this.text);
    this.at += found?.[0].length ?? 0;
    this.tally.looked += found?.[0].length ?? 1;
    return found;
  }

  // literal takes so many characters as they are.
  literal(length) {
    this.plain += this.text.slice(this.at, this.at + length);
    this.at += length;
  }

  flush() {
    if (this.plain) this.tokens.push({ text: this.plain });
    this.plain = '';
  }

  escape() {
    const next = this.text[this.at + 1] ?? '';
    if (next === '\n' || punctuation.test(next)) this.at++; // a hard break is an end of a line like all others
    this.literal(1);
  }

  entity() {
    const found = this.take(/&(amp|lt|gt|quot|apos|nbsp|#39);/y);
    if (found) this.plain += entities[found[1]];
    else this.literal(1);
  }

  code() {
    this.closers ??= closersOf(this.text, this.tally);
    const { length } = run(this.text, this.at);
    const end = this.closers.get(this.at);
    if (end === undefined) {
      this.literal(length);
      return;
    }
    this.flush();
    const inside = this.text.slice(this.at + length, end).replaceAll('\n', ' ');
    this.tokens.push({ code: inside.length > 2 && inside.startsWith(' ') && inside.endsWith(' ') && inside.trim() ? inside.slice(1, -1) : inside });
    this.at = end + length;
  }

  angle() {
    const found = this.take(/<((?:https?:\/\/|mailto:)[^\s<>]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)>/iy);
    const url = found && safe(/^(?:https?|mailto):/i.test(found[1]) ? found[1] : `mailto:${found[1]}`);
    if (url) this.link(url, found[1]);
    else if (found) this.plain += found[0];
    else if (this.cell && this.take(/<br *\/?>/iy)) this.plain += '\n';
    else this.literal(1);
  }

  // address takes an address that stands in the text by itself, without the punctuation behind it.
  address() {
    const before = this.text[this.at - 1] ?? ' ';
    let [found] = this.take(/https?:\/\/[^\s<>[\]`"*|\\\p{C}\p{Z}\p{Default_Ignorable_Code_Point}、。，！？；：（）「」『』《》]*/iuy);
    const start = this.at - found.length;
    let open = found.split('(').length - found.split(')').length;
    let { length } = found;
    while ("?!.,:;_~')".includes(found[length - 1]) && !(found[length - 1] === ')' && open >= 0)) {
      length--;
      if (found[length] === ')') open++;
    }
    found = found.slice(0, length);
    this.at = start + length;
    const url = /[\p{L}\p{N}]/u.test(before) ? undefined : safe(found);
    if (url) this.link(url, found);
    else this.plain += found;
  }

  link(url, text) {
    this.flush();
    this.tokens.push({ begins: url }, { text }, { ends: true });
  }

  // close takes a closing bracket, which may end the text of a link.
  close() {
    const bracket = this.brackets.pop();
    const target = bracket?.active && this.text[this.at + 1] === '(' ? this.target(this.at + 1) : undefined;
    const url = target && safe(plain(target.address));
    if (!url) {
      this.literal(1); // a target that is not safe to follow is text as well
      return;
    }
    this.flush();
    this.pair(bracket.below);
    this.tokens[bracket.token] = { begins: url, picture: bracket.picture };
    this.tokens.push({ ends: true });
    this.at = target.end;
    if (bracket.picture) return;
    // No link is inside another one. Those below one that is not active are not, either.
    for (let i = this.brackets.length - 1; i >= 0 && this.brackets[i].active; i--) this.brackets[i].active = false;
  }

  // target returns the address in the parentheses that open somewhere, and where they end.
  target(open) {
    this.parentheses ??= parenthesesOf(this.text, this.tally);
    const { text } = this;
    let address;
    let at;
    const scheme = /<?(?:https?|mailto):/iy;
    scheme.lastIndex = open + 1;
    if (!scheme.test(text)) return undefined;
    if (text[open + 1] === '<') {
      const angle = /<([^<>\n]*)>/y;
      angle.lastIndex = open + 1;
      const found = angle.exec(text);
      if (!found) return undefined;
      address = found[1];
      at = open + 1 + found[0].length;
    } else {
      at = this.parentheses.get(open);
      if (at === undefined || at - open > longestTarget) return undefined;
      address = text.slice(open + 1, at);
    }
    this.tally.looked += address.length;
    at = pass(text, at);
    if (text[at] === '"' || text[at] === "'") {
      at = this.find(text[at], at + 1);
      if (at < 0) return undefined;
      at = pass(text, at + 1);
    }
    return text[at] === ')' ? { address, end: at + 1 } : undefined;
  }

  // find looks for a quotation mark. What was not found once is not looked for again.
  find(mark, from) {
    if (this.missing[mark]) return -1;
    const at = this.text.indexOf(mark, from);
    this.tally.looked += (at < 0 ? this.text.length : at) - from;
    this.missing[mark] = at < 0;
    return at;
  }

  // delimiters takes a run of delimiters, which may begin or end an emphasis, depending on what is beside it.
  delimiters(mark) {
    const found = run(this.text, this.at);
    this.tally.looked += found.length;
    if (mark === '~' && found.length !== 2) {
      this.literal(found.length);
      return;
    }
    const before = beside(this.text, this.at, -1);
    const after = beside(this.text, this.at + found.length, 1);
    const [opens, closes] = [flanks(after, before, mark), flanks(before, after, mark)];
    this.flush();
    const token = {
      mark, count: found.length, length: found.length, order: this.tokens.length, begun: [], ended: 0, before: this.last,
      opens: opens && (mark !== '_' || !closes || punctuates(before)), closes: closes && (mark !== '_' || !opens || punctuates(after)),
    };
    if (this.last) this.last.after = token;
    this.last = token;
    this.tokens.push(token);
    this.at += found.length;
  }

  // pair finds which delimiters above one belong together, and forgets them. For each kind of end it remembers below
  // which delimiter there is no beginning, so that it looks at each only a few times.
  pair(below) {
    const floor = new Map();
    let closer = this.last;
    while (closer && closer.before !== below) closer = closer.before;
    while (closer) {
      this.tally.looked++;
      const next = closer.after;
      if (!closer.closes) {
        closer = next;
        continue;
      }
      const kind = `${closer.mark}${closer.opens}${closer.length % 3}`;
      const lowest = floor.get(kind) ?? below?.order ?? -1;
      let opener = closer.before;
      while (opener?.order > lowest && !fits(opener, closer)) {
        this.tally.looked++;
        opener = opener.before;
      }
      if (!(opener?.order > lowest)) {
        floor.set(kind, closer.before?.order ?? -1);
        if (!closer.opens) this.forget(closer);
        closer = next;
        continue;
      }
      const used = closer.mark === '~' || (opener.count > 1 && closer.count > 1) ? 2 : 1;
      opener.begun.push(closer.mark === '~' ? 'del' : used === 2 ? 'strong' : 'em');
      closer.ended++;
      opener.count -= used;
      closer.count -= used;
      [opener.after, closer.before] = [closer, opener];
      if (opener.count === 0) this.forget(opener);
      if (closer.count === 0) {
        this.forget(closer);
        closer = next;
      }
    }
    this.last = below;
    if (below) below.after = undefined;
  }

  forget(token) {
    if (token.before) token.before.after = token.after;
    if (token.after) token.after.before = token.before;
    else if (this.last === token) this.last = token.before;
  }
}

// build makes nodes of tokens.
function build(tokens) {
  const parents = [document.createDocumentFragment()];
  let links = 0; // around the current token; only the outermost is one
  let said = '';
  const flush = () => {
    if (said) parents.at(-1).append(links > 0 ? clear(said) : said);
    said = '';
  };
  const begin = node => {
    flush();
    if (node) parents.at(-1).append(node);
    parents.push(node ?? parents.at(-1));
  };
  const end = () => {
    flush();
    return parents.pop();
  };
  let picture = false;
  for (const token of tokens) {
    if (token.text !== undefined) {
      said += token.text;
    } else if (token.code !== undefined) {
      flush();
      parents.at(-1).append(element('code', { dir: 'ltr' }, clear(token.code)));
    } else if (token.begins) {
      begin(links === 0 ? anchor(token.begins) : undefined);
      if (links === 0) picture = token.picture;
      links++;
    } else if (token.ends) {
      const node = end();
      links--;
      if (links === 0) tell(node, picture);
    } else {
      for (let i = 0; i < token.ended; i++) end();
      said += token.mark.repeat(token.count);
      for (const tag of token.begun.reverse()) begin(parents.length <= deepest ? element(tag) : undefined);
    }
  }
  flush();
  return parents[0];
}

// safe returns the address of a link that may be followed. Others are shown as text.
function safe(text) {
  if (text.length > longestTarget) return undefined;
  try {
    const url = new URL(text);
    const web = /^https?:$/.test(url.protocol) && !url.username && !url.password;
    return web || (url.protocol === 'mailto:' && url.pathname) ? url : undefined;
  } catch {
    return undefined; // it is relative, and who wrote the text does not know to what
  }
}

function anchor(url) {
  return element('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer nofollow', title: visible(url.href), dir: 'auto' });
}

// tell adds to a link where it leads if its text does not say that, or says something else.
function tell(link, picture) {
  const url = new URL(link.href);
  const where = visible(url.protocol === 'mailto:' ? url.pathname + url.search : url.host);
  if (!link.textContent.trim()) link.append(picture ? 'picture' : visible(url.href));
  if (picture || misleads(link.textContent, url)) link.append(element('small', { dir: 'ltr' }, ` (${where})`));
}

const longestName = 300; // characters of a link's text in which hosts are looked for; a longer one may name any

const host = /[\p{L}\p{N}\p{M}-]{1,63}(?:[.\u3002][\p{L}\p{N}\p{M}-]{1,63})+|localhost/gu;

// misleads reports whether a text has an address or a name of a host that is not the link's.
function misleads(text, url) {
  if (text.length > longestName) return true;
  const plain = text.normalize('NFKC').toLowerCase().trim(); // which has one kind of dot
  if (url.protocol === 'mailto:') return url.search !== '' || (/[@.:]/.test(plain) && plain.replace(/^mailto:/, '') !== url.pathname.toLowerCase());
  // A name in other letters is the same host, and may look like another one.
  if (plain.includes(url.host) && !/[\s@]/.test(plain) && [plain, `https://${plain}`].some(address => URL.canParse(address) && new URL(address).host === url.host)) return false;
  if (/^[a-z]+:[/\\]/.test(plain)) return true;
  return (plain.match(host) ?? []).some(name => /(^localhost|[.\u3002]\p{L}{2,}|[.\u3002]xn--[^.]*|^\d+(\.\d+){3})$/u.test(name) && name !== url.hostname);
}

// clear makes visible what hides in code and in the text of a link. What belongs to an emoji, and the joiners of scripts
// that need them, stay as they are.
export function clear(text) {
  return text.split(belongs).map((piece, i) => (i % 2 ? piece : visible(piece))).join('');
}

const belongs = new RegExp('([\\n\\t]'
  + '|(?<=\\p{Extended_Pictographic})\\ufe0f'
  + '|(?<=[\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\ufe0f])\\u200d(?=\\p{Extended_Pictographic})'
  + '|(?<=[\\u0590-\\u0dff])[\\u200c\\u200d](?=[\\u0590-\\u0dff]))', 'u');

// undecided is the end of a text of which clear does not know yet how it is shown.
export const undecided = /(?:[\p{Extended_Pictographic}\p{Emoji_Modifier}]\ufe0f?\u200d?|[\u0590-\u0dff][\u200c\u200d]?)?[\ud800-\udbff]?$/u;

const entities = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', '#39': "'" };
const punctuation = /^[!-/:-@[-`{-~]$/;

// plain is a target without its escapes.
function plain(target) {
  return target.replace(/\\([!-/:-@[-`{-~])|&(amp|lt|gt|quot|apos|nbsp|#39);/g, (_, escaped, entity) => escaped ?? entities[entity]);
}

// run returns the run of equal characters that begins somewhere.
function run(text, at) {
  let end = at + 1;
  while (text[end] === text[at]) end++;
  return text.slice(at, end);
}

// pass returns where white space ends.
function pass(text, at) {
  while (text[at] === ' ' || text[at] === '\t' || text[at] === '\n') at++;
  return at;
}

// closersOf returns, for each run of backticks, where the next one of the same length begins.
function closersOf(text, tally) {
  const closers = new Map();
  const later = new Map();
  for (const { 0: { length }, index } of [...text.matchAll(/`+/g)].reverse()) {
    if (later.has(length)) closers.set(index, later.get(length));
    later.set(length, index);
  }
  tally.looked += text.length;
  return closers;
}

// parenthesesOf returns, for each opening parenthesis, where an address that begins behind it ends: at its closing
// parenthesis, or at white space.
function parenthesesOf(text, tally) {
  const ends = new Map();
  let open = [];
  for (const { 0: found, index } of text.matchAll(/\\.|[()]|\s/gs)) {
    if (found === '(') open = [...open.slice(-mostInside), index];
    else if (found === ')' && open.length > 0) ends.set(open.pop(), index);
    else if (found.trim() === '' && open.length > 0) {
      ends.set(open.at(-1), index);
      open = [];
    }
  }
  tally.looked += text.length;
  return ends;
}

// beside returns the character before or after a place; the ends of the text are white space.
function beside(text, at, side) {
  if (side > 0) return at < text.length ? String.fromCodePoint(text.codePointAt(at)) : ' ';
  const low = /[\udc00-\udfff]/.test(text[at - 1] ?? '');
  return at > 0 ? text.slice(at - (low ? 2 : 1), at) : ' ';
}

const punctuates = character => /[\s\p{P}\p{S}]/u.test(character);

// flanks reports whether a delimiter is beside a word, which is at one of its sides. Chinese, Japanese and Korean have no
// spaces between words, so that a character of theirs at the other side counts like one.
function flanks(word, other, mark) {
  if (/\s/.test(word)) return false;
  return !punctuates(word) || punctuates(other) || (mark === '*' && /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/u.test(other));
}

// fits reports whether an emphasis that begins at one delimiter may end at another.
function fits(opener, closer) {
  if (opener.mark !== closer.mark || !opener.opens) return false;
  const odd = (opener.closes || closer.opens) && (opener.length + closer.length) % 3 === 0;
  return !odd || (opener.length % 3 === 0 && closer.length % 3 === 0);
}
