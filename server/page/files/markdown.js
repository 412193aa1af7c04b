// Markdown on the page, shown while it arrives.
//
// It is our own because the page needs three things together. It creates nodes and never HTML, so that nothing in a reply
// can become markup. It adds to what is shown, so that a selection or the focus in it stays. And what it does for a token
// does not depend on how long the reply is. The libraries that everybody knows write HTML for the whole text each time, and
// need another one beside them that makes the HTML safe.
//
// It reads GitHub's kind of markdown, with these differences. HTML is text. Pictures are links. Every end of a line is
// shown. What is indented is not code, and may begin a block of any kind. A line of === or --- does not turn the text
// above it into a heading. Links name their targets themselves.
import { $, element, setText } from './dom.js';
import { visible } from './exact.js';
import { clear, inlines, undecided } from './inlines.js';

export const longest = 200_000; // characters of a text; a browser takes many seconds to lay out millions of them
const longestBlock = 8_000; // characters of a line or a paragraph whose markdown is read; what follows is plain
const deepest = 16; // lists and quotes inside each other; what is deeper is text
const widest = 64; // columns of a table; one with more is text

// Markdown shows a text in an element. It takes lines one by one: a line that is complete is never looked at again, nor
// is a block once another one has begun. The end of the text may be the beginning of a line of any kind, so it is shown as
// if it were complete and taken back when more arrives, until no more can change what kind of line it is.
export class Markdown {
  constructor(node) {
    this.node = node;
    this.looked = 0; // the characters that were looked at, for tests
    this.begin();
  }

  begin() {
    this.node.replaceChildren();
    this.text = '';
    this.line = ''; // what has arrived of a line, unless its kind is certain
    this.certain = false;
    this.open = []; // the lists, items and quotes around the place where the text goes on, outermost first
    this.leaf = undefined; // the paragraph, heading, code or table there
    this.levels = []; // of the headings above
    this.before = undefined; // the state before the line that may be taken back
    this.more = undefined;
  }

  // write shows a text. It is usually the last one and something more; if it is another one, everything is shown anew. To
  // compare the two is the only thing that takes longer for a longer text: some microseconds for the longest.
  write(whole) {
    const text = whole.slice(0, longest);
    if (text !== this.text) {
      if (!text.startsWith(this.text)) this.begin();
      this.takeBack();
      // A carriage return that may belong to the end of a line waits for what follows.
      const known = this.text.endsWith('\r') ? this.text.length - 1 : this.text.length;
      this.text = text;
      this.read(text.slice(known, text.endsWith('\r') ? -1 : undefined).replaceAll('\r\n', '\n'));
    }
    if (whole.length <= longest) return;
    if (!this.more) this.node.append(this.more = element('p'));
    setText(this.more, `… and ${(whole.length - longest).toLocaleString()} more characters`);
  }

  read(text) {
    this.looked += text.length;
    text.split('\n').forEach((piece, i) => {
      if (i > 0) this.endLine();
      if (this.certain) this.extend(piece);
      else this.line += piece;
      if (this.line.length > longestBlock) {
        const line = this.line;
        this.line = '';
        this.certain = true;
        this.take(line.slice(0, longestBlock), true);
        this.extend(line.slice(longestBlock));
      }
    });
    if (this.line) this.guess();
    if (this.leaf?.stale) this.render(this.leaf);
  }

  endLine() {
    if (!this.certain) this.take(this.line);
    this.line = '';
    this.certain = false;
  }

  // guess takes a line that may not be complete.
  guess() {
    this.before = {
      open: this.open.map(block => ({ ...block })), leaf: this.leaf && { ...this.leaf }, levels: this.levels, undo: [],
    };
    if (!this.take(this.line)) return;
    this.before = undefined;
    this.line = '';
    this.certain = true;
  }

  takeBack() {
    if (!this.before) return;
    const { undo, ...state } = this.before;
    this.before = undefined;
    while (undo.length > 0) undo.pop()();
    Object.assign(this, state);
    if (this.leaf?.text !== undefined && !this.leaf.full) this.leaf.stale = true;
  }

  undone(by) {
    this.before?.undo.push(by);
  }

  // take takes a line. It reports whether more of the line could only be more of its text. A line that is too long has no
  // kind that its end decides.
  take(text, long = false) {
    this.looked += text.length;
    const inTable = this.leaf?.rows !== undefined;
    if (this.leaf?.heading) this.end();
    const line = new Line(text);
    let depth = this.match(line);
    const inside = depth === this.open.length;
    if (this.leaf?.code && inside) return this.takeCode(line, long);
    if (line.blank) {
      this.cut(depth);
      for (const block of this.open) block.gap = true;
      return false;
    }
    // A list of which no item goes on ends, unless the line is its next item.
    const list = !inside && this.open[depth - 1]?.list ? this.open[--depth] : undefined;
    const interrupts = inside && this.leaf?.text !== undefined;
    let begun = false;
    for (;;) {
      const deeper = this.open.filter((block, i) => i < depth && !block.list).length < deepest;
      const item = deeper && !(!long && ruled(line.rest, this)) && itemOf(line);
      if (deeper && line.rest.startsWith('>')) {
        this.cut(depth);
        line.pass(1);
        line.skip(Math.min(line.indent, 1));
        this.enter({ quote: true, node: element('blockquote') });
      } else if (item && !(interrupts && !begun && (item.empty || (item.number ?? 1) !== 1))) {
        const same = !begun && list?.list === item.mark;
        this.cut(same ? depth + 1 : depth);
        this.enterItem(line, item, same);
      } else {
        break;
      }
      begun = true;
      depth = this.open.length;
    }
    if (line.blank) return false;
    if (this.takeWhole(line, depth, long)) return false;
    const sure = telling.test(text) && !inTable;
    const heading = /^(#{1,6})[ \t]+(?=[^ \t])/.exec(line.rest);
    if (heading) {
      this.cut(depth);
      this.place((this.leaf = this.writing(element(this.level(heading[1].length)), { heading: true })).node);
      line.pass(heading[0].length);
      this.grow(line.rest);
      return sure;
    }
    if (!begun && this.leaf?.text !== undefined) { // a paragraph goes on, also where its quote or item was left out
      if (inside && !long && this.tabulate(line.rest)) return false;
      this.grow(`\n${line.rest}`);
      return sure;
    }
    if (!begun && inside && !long && this.leaf?.rows && line.rest.includes('|')) {
      this.row(line.rest);
      return false;
    }
    this.cut(depth);
    this.startParagraph();
    this.grow(line.rest);
    return sure;
  }

  // match finds how many of the open blocks a line continues.
  match(line) {
    let depth = 0;
    for (; depth < this.open.length; depth++) {
      const block = this.open[depth];
      if (block.quote) {
        if (!line.rest.startsWith('>')) break;
        line.pass(1);
        line.skip(Math.min(line.indent, 1));
      } else if (!block.list) {
        if (!line.blank && line.indent < block.indent) {
          // In an ordered list, models often indent the items of a list by less than the text above them.
          const less = this.open[depth - 1].node.tagName === 'OL' && line.indent >= 2 && /^[-+*][ \t]/.test(line.rest.slice(0, 2));
          if (!less) break;
          block.indent = line.indent;
        }
        line.skip(Math.min(line.indent, block.indent));
      }
    }
    return depth;
  }

  // takeWhole takes a line that is a block by itself or begins code.
  takeWhole(line, depth, long) {
    if (long) return false;
    if (ruled(line.rest, this)) {
      this.cut(depth);
      this.place(element('hr'));
      return true;
    }
    const fence = /^(`{3,})([^`]*)$|^(~{3,})(.*)$/.exec(line.rest);
    if (!fence) return false;
    this.cut(depth);
    const code = new Code((fence[2] ?? fence[4]).trim().split(/\s/)[0]);
    this.leaf = { code, fence: fence[1] ?? fence[3], indent: line.indent };
    this.place(code.node);
    return true;
  }

  takeCode(line, long) {
    const { code, fence, indent, begun } = this.leaf;
    const close = line.rest.trimEnd();
    if (!long && close.length >= fence.length && line.indent <= indent + 3 && close === fence[0].repeat(close.length)) {
      this.end();
      return false;
    }
    line.skip(Math.min(line.indent, indent));
    this.undone(code.mark());
    code.append((begun ? '\n' : '') + line.all);
    this.leaf.begun = true;
    return close !== '' && close !== fence[0].repeat(close.length);
  }

  enterItem(line, { mark, number, width, empty }, same) {
    if (!same) {
      const node = number === undefined ? element('ul') : element('ol', number === 1 ? {} : { start: number });
      this.enter({ list: mark, node });
    }
    const { indent } = line;
    line.skip(indent);
    line.pass(width);
    const space = empty || line.indent > 4 ? 1 : line.indent;
    this.enter({ node: element('li'), indent: indent + width + space });
    line.skip(Math.min(line.indent, space));
  }

  enter(block) {
    this.place(block.node);
    this.open.push(block);
  }

  // cut ends what is open at a depth and below.
  cut(depth) {
    this.end();
    this.open.length = Math.min(this.open.length, depth);
  }

  end() {
    if (this.leaf?.stale) this.render(this.leaf);
    this.leaf = undefined;
  }

  // place shows a block where the text goes on. An empty line before it parts the items of a list.
  place(node) {
    const into = this.open.at(-1);
    if (into?.gap && into.filled && !into.quote) this.loosen(into.list ? into : this.open.at(-2));
    if (into) into.filled = true;
    for (const block of this.open) block.gap = false;
    (into?.node ?? this.node).append(node);
    this.undone(() => node.remove());
  }

  loosen({ node }) {
    if (node.className) return;
    node.className = 'loose';
    this.undone(() => node.removeAttribute('class'));
  }

  // level returns the element of a heading. The page's own are h1 and h2, and no level is left out below them.
  level(written) {
    this.levels = [...this.levels.filter(level => level < written), written];
    return `h${Math.min(this.levels.length + 2, 6)}`;
  }

  startParagraph() {
    const into = this.open.at(-1);
    const node = element('p');
    this.leaf = this.writing(node, { first: into?.indent !== undefined && !into.filled });
    this.place(node);
  }

  // writing returns a leaf whose text is markdown as far as it is not too long.
  writing(node, fields) {
    return { node, text: '', line: '', rest: new Pile(node), ...fields };
  }

  // extend adds text to the line that was taken last.
  extend(text) {
    if (!this.leaf) {
      text = text.trimStart();
      if (text) this.startParagraph();
    }
    if (!text) return;
    if (this.leaf.code) this.leaf.code.append(text);
    else this.grow(text);
  }

  grow(text) {
    const { leaf } = this;
    leaf.line = text.startsWith('\n') ? text.slice(1) : leaf.line + text;
    if (!leaf.full) {
      const room = longestBlock - leaf.text.length;
      leaf.text += text.slice(0, room);
      leaf.stale = true;
      text = text.slice(room);
      if (leaf.text.length < longestBlock) return;
      leaf.full = true;
      if (/[\ud800-\udbff]$/.test(leaf.text)) { // half a character
        text = leaf.text.at(-1) + text;
        leaf.text = leaf.text.slice(0, -1);
      }
      this.render(leaf);
    }
    this.undone(leaf.rest.mark());
    leaf.rest.append(text);
  }

  render(leaf) {
    leaf.stale = false;
    const text = leaf.heading && !leaf.full ? withoutClosing(leaf.text) : leaf.text;
    const task = leaf.first && /^\[[ xX]\][ \t]/.test(text);
    const fresh = inlines(task ? text.slice(3) : text, this);
    if (task) fresh.prepend(box(text[1] !== ' '));
    this.direct(leaf.first ? leaf.text.replace(/^\[[ xX]?\]?/, '') : text); // without what may become a task's box
    replace(leaf.node, fresh);
  }

  // direct turns lists and quotes round that begin with a letter of a script that is written from right to left. The
  // browser does so for paragraphs by their style, and would with dir=auto for all, but look at every item for each new one.
  direct(text) {
    const outer = this.open[0];
    const turned = outer && !outer.directed ? turns(text) : undefined;
    if (turned === undefined) return;
    outer.directed = true;
    if (!turned) return;
    outer.node.dir = 'rtl';
    this.undone(() => outer.node.removeAttribute('dir'));
  }

  // tabulate makes the last line of the paragraph a table's head if the line below it says so.
  tabulate(line) {
    const { leaf } = this;
    const head = leaf.line;
    if (leaf.full || !/^[|:\- \t]+$/.test(line) || !line.includes('|') || !head.includes('|')) return false;
    const columns = cells(line, widest + 1);
    const heads = cells(head, widest + 1);
    this.looked += head.length;
    if (heads.length > widest || columns.length !== heads.length || !columns.every(column => /^:?-+:?$/.test(column))) return false;
    if (leaf.text === head) {
      const { node } = leaf;
      const { parentNode } = node;
      node.remove();
      this.undone(() => parentNode.append(node));
      this.leaf = undefined;
    } else {
      Object.assign(leaf, { text: leaf.text.slice(0, -head.length - 1), stale: true });
      this.end();
    }
    const align = columns.map(column => (column.endsWith(':') ? (column.startsWith(':') ? 'center' : 'end') : ''));
    const rows = element('tbody');
    const table = element('table', {}, element('thead', {}, this.rowOf('th', heads, align)), rows);
    this.place(element('div', { className: 'table', tabIndex: 0, role: 'group', ariaLabel: 'Table', ...(turns(head) && { dir: 'rtl' }) }, table));
    this.leaf = { rows, align };
    return true;
  }

  row(line) {
    const { rows, align } = this.leaf;
    const node = this.rowOf('td', cells(line, align.length), align);
    rows.append(node);
    this.undone(() => node.remove());
  }

  rowOf(tag, texts, align) {
    return element('tr', {}, ...texts.map((text, i) => {
      const node = element(tag, align[i] ? { className: align[i] } : {}, inlines(text, this, { cell: true }));
      if (tag === 'th') node.scope = 'col';
      return node;
    }));
  }
}

// box is that of a task.
function box(done) {
  return element('span', { className: 'task', role: 'img', ariaLabel: done ? 'done' : 'to do' }, done ? '☑' : '☐');
}

// telling is a character that begins no block, so that a line with one before which all is known is of a certain kind.
const telling = /[^#>*+\-_`~|:.)\d\s]/;

// Line is a line of which blocks take their marks. A tab reaches to the next multiple of four columns.
class Line {
  constructor(text) {
    Object.assign(this, { text, at: 0, start: 0, column: 0 }); // the character at start may be a tab that is taken in part
    this.find();
  }

  // find finds the next character that is not white space.
  find() {
    this.next = this.at;
    this.edge = this.start;
    for (; this.text[this.next] === ' ' || this.text[this.next] === '\t'; this.next++) this.edge = this.after(this.next, this.edge);
    this.rest = this.text.slice(this.next);
  }

  after(at, column) {
    return column + (this.text[at] === '\t' ? 4 - (column % 4) : 1);
  }

  get blank() {
    return this.next === this.text.length;
  }

  // indent is how much white space there is.
  get indent() {
    return this.edge - this.column;
  }

  // skip takes so many columns of white space.
  skip(columns) {
    this.column += columns;
    while (this.at < this.next && this.after(this.at, this.start) <= this.column) {
      this.start = this.after(this.at, this.start);
      this.at++;
    }
  }

  // pass takes so many characters and the white space before them.
  pass(characters) {
    this.at = this.next + characters;
    this.column = this.start = this.edge + characters;
    this.find();
  }

  // all is what is left, with its white space.
  get all() {
    if (this.column === this.start) return this.text.slice(this.at);
    return ' '.repeat(this.after(this.at, this.start) - this.column) + this.text.slice(this.at + 1);
  }
}

// itemOf returns the mark of the list's item that begins with a line.
function itemOf(line) {
  const found = /^(?:([-+*])|(\d{1,9})([.)]))(?=[ \t]|$)/.exec(line.rest);
  if (!found) return undefined;
  const number = found[2] === undefined ? undefined : Number(found[2]);
  return { mark: found[1] ?? found[3], number, width: found[0].length, empty: line.rest.slice(found[0].length).trim() === '' };
}

// ruled reports whether a line is a thematic break.
function ruled(text, tally) {
  if (!'*-_'.includes(text[0] ?? ' ')) return false;
  let marks = 0;
  for (const character of text) {
    tally.looked++;
    if (character === text[0]) marks++;
    else if (character !== ' ' && character !== '\t') return false;
  }
  return marks >= 3;
}

// turns reports whether the first letter of a text is of a script that is written from right to left, if it has a letter.
function turns(text) {
  const first = /\p{L}/u.exec(text);
  return first ? /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u.test(first[0]) : undefined;
}

// withoutClosing returns the text of a heading without the marks that may end it.
function withoutClosing(text) {
  const trimmed = text.trimEnd();
  let end = trimmed.length;
  while (trimmed[end - 1] === '#') end--;
  return end < trimmed.length && end > 0 && /\s/.test(trimmed[end - 1]) ? trimmed.slice(0, end).trimEnd() : text;
}

// cells returns the cells of a table's row; the last of so many has all that is left.
function cells(row, most) {
  let text = row.trim();
  if (text.startsWith('|')) text = text.slice(1);
  if (text.endsWith('|') && !text.endsWith('\\|')) text = text.slice(0, -1);
  const all = [''];
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '|' && all.length < most) all.push('');
    else if (text[i] === '\\' && text[i + 1] === '|') all[all.length - 1] += text[++i];
    else all[all.length - 1] += text[i];
  }
  return all.map(cell => cell.trim());
}

// replace makes the children of a node equal to others. It leaves those alone that are, so that what is selected there
// stays selected.
function replace(node, others) {
  let [known, fresh] = [node.firstChild, others.firstChild];
  for (; known && fresh && known.isEqualNode(fresh); known = known.nextSibling) {
    const next = fresh.nextSibling;
    fresh.remove();
    fresh = next;
  }
  if (known?.nodeType === Node.TEXT_NODE && fresh?.nodeType === Node.TEXT_NODE && fresh.data.startsWith(known.data)) {
    known.appendData(fresh.data.slice(known.data.length));
    fresh.remove();
    known = known.nextSibling;
  }
  while (known) {
    const next = known.nextSibling;
    known.remove();
    known = next;
  }
  if (others.hasChildNodes()) node.append(others);
}

const longestNode = 4_000; // to add to a longer one would take longer

// Pile is text at the end of a node, or before another node there, that only grows.
class Pile {
  constructor(node, before = null) {
    Object.assign(this, { node, before, texts: [] });
  }

  append(text) {
    if (!text) return;
    if (!(this.texts.at(-1)?.length <= longestNode)) {
      this.texts.push(new Text());
      this.node.insertBefore(this.texts.at(-1), this.before);
    }
    this.texts.at(-1).appendData(text);
  }

  // mark returns what undoes all that is appended from now on.
  mark() {
    const known = this.texts.length;
    const last = this.texts.at(-1);
    const length = last?.length;
    return () => {
      for (const text of this.texts.splice(known)) text.remove();
      last?.deleteData(length, last.length - length);
    };
  }
}

// Code is a box with code, which can be copied as it was written.
class Code {
  constructor(language) {
    const label = visible(language.slice(0, 40));
    this.raw = '';
    this.open = ''; // the end of it, of which is not known yet how it is shown
    this.ending = new Text();
    this.shown = element('code', {}, this.ending);
    this.pile = new Pile(this.shown, this.ending);
    this.button = element('button', { type: 'button', ariaLabel: 'Copy code', onclick: () => this.copy() }, 'Copy');
    this.node = element('div', { className: 'code' },
      element('div', { className: 'head' }, element('span', {}, label), this.button),
      element('pre', { dir: 'ltr', tabIndex: 0, role: 'group', ariaLabel: label ? `Code, ${label}` : 'Code' }, this.shown));
  }

  append(text) {
    this.raw += text;
    const all = this.open + text;
    [this.open] = undecided.exec(all.slice(-5));
    const [whole, ending] = [clear(all), clear(this.open)];
    this.pile.append(whole.slice(0, whole.length - ending.length));
    this.ending.data = clear(this.open.replace(/[\ud800-\udbff]$/, '')); // half a character is not shown
  }

  mark() {
    const undo = this.pile.mark();
    const { raw, open } = this;
    const { data } = this.ending;
    return () => {
      undo();
      Object.assign(this, { raw, open });
      this.ending.data = data;
    };
  }

  // copy copies the code. Browsers offer that to pages of this machine and to encrypted ones only. On others, it selects
  // the code.
  async copy() {
    let said = 'Copied';
    try {
      // Without what controls a terminal: it may be pasted into one.
      await navigator.clipboard.writeText(this.raw.replace(/(?![\n\t])\p{Cc}/gu, ''));
    } catch {
      getSelection().selectAllChildren(this.shown);
      said = 'Selected';
    }
    clearTimeout(this.telling);
    this.tell(said);
    this.telling = setTimeout(() => this.tell(''), 2_000);
  }

  // tell says what was done, on the button and to those who do not see it.
  tell(said) {
    setText(this.button, said || 'Copy');
    setText($('live'), said && `${said}.`);
  }
}
