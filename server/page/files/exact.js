// Exact JSON with everything in it visible: people must approve what the server has.
import { element } from './dom.js';

// Value is JSON as it is written: JSON.parse would round numbers and forget all but the last of equal keys.
class Value {
  constructor(fields) {
    Object.assign(this, fields);
  }

  get(key) {
    return this.entries?.find(([name]) => name === key)?.[1];
  }
}

// read parses JSON that is known to be valid.
export function read(text) {
  const token = /\s*([{}[\],:]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s{}[\],:"]+)/gy;
  const next = () => token.exec(text)[1];
  const value = first => {
    if (first === '{' || first === '[') {
      const entries = [];
      const items = [];
      for (let at = next(); at !== '}' && at !== ']'; at = next()) {
        if (at === ',') at = next();
        if (first === '[') {
          items.push(value(at));
        } else {
          next(); // the colon
          entries.push([JSON.parse(at), value(next())]);
        }
      }
      return new Value(first === '{' ? { entries } : { items });
    }
    return new Value(first.startsWith('"') ? { value: JSON.parse(first) } : { literal: first });
  };
  return value(next());
}

// draw shows a value as equivalent JSON, with a line per key. Keys and values are separate elements, so that none changes
// the display order of another.
export function draw(value, into, line) {
  if (value.literal !== undefined) {
    into.append(value.literal);
  } else if (value.value !== undefined) {
    into.append(apart(visible(JSON.stringify(value.value))));
  } else {
    const list = value.items ?? value.entries;
    into.append(value.items ? '[' : '{');
    list.forEach((one, i) => {
      into.append(i > 0 ? ',' : '', `${line}  `);
      if (value.entries) into.append(apart(visible(JSON.stringify(one[0]))), ': ');
      draw(value.entries ? one[1] : one, into, `${line}  `);
    });
    into.append(list.length > 0 ? line : '', value.items ? ']' : '}');
  }
}

function apart(text) {
  return element('bdi', { dir: 'ltr' }, text);
}

// visible writes what does not show by itself, or moves what is around it, as an escape: control characters, marks that
// reverse text, characters without a width, and spaces other than the usual one.
export function visible(text) {
  return text.replace(/(?! )[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/gu, unseen =>
    Array.from({ length: unseen.length }, (_, i) => `\\u${unseen.charCodeAt(i).toString(16).padStart(4, '0')}`).join(''));
}
