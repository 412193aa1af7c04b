// The files that go with the next message of each conversation. They are kept by the page alone, because a tab's storage is too
// small for them: a reload forgets them.
import { $, button, element } from './dom.js';
import { visible } from './exact.js';

const most = 16; // files with a message
const mostBytes = 32 << 20; // of them all, if the server accepts that much
const room = 64 << 10; // for the text and the rest of a request
const longestName = 150;

export class Attached {
  // refuse tells the person why a file was not taken; limit returns how many bytes a request may have.
  constructor(refuse, limit) {
    Object.assign(this, { refuse, limit });
    this.lists = new Map(); // the files of each conversation that were not sent yet
    this.under = new Map(); // and those that are being sent
    $('attach').addEventListener('click', () => $('pick').click());
    $('pick').addEventListener('change', () => {
      this.add($('pick').files);
      $('pick').value = ''; // so that the same file can be chosen again
    });
    $('text').addEventListener('paste', event => {
      if (event.clipboardData.files.length === 0 || event.clipboardData.types.includes('text/plain')) return;
      event.preventDefault();
      this.add(event.clipboardData.files);
    });
    const page = document.documentElement;
    page.addEventListener('dragstart', () => { this.own = true; }); // what is dragged is part of the page itself
    page.addEventListener('dragend', () => { this.own = false; });
    page.addEventListener('dragover', event => {
      if (!carriesFiles(event)) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = this.takes() && !this.own ? 'copy' : 'none';
    });
    page.addEventListener('drop', event => {
      if (!carriesFiles(event)) return;
      event.preventDefault(); // or the browser would leave the page for the file
      if (this.own) return;
      const directory = [...event.dataTransfer.items].map(item => item.webkitGetAsEntry?.()).find(entry => entry?.isDirectory);
      if (directory) this.refuse(`${visible(directory.name)} is a directory. Attach the files in it.`);
      else this.add(event.dataTransfer.files);
    });
  }

  // takes reports whether there is a conversation to which something can be attached.
  takes() {
    return !$('attach').disabled && !document.querySelector('dialog[open]');
  }

  // show shows the files of a conversation. Those that were being sent when it was left are its files again, and are returned.
  show(id) {
    this.id = id;
    const returned = this.under.get(id) ?? [];
    this.giveBack(id);
    this.draw();
    return returned;
  }

  of(id) {
    return this.lists.get(id) ?? [];
  }

  put(id, list) {
    if (list.length > 0) this.lists.set(id, list);
    else this.lists.delete(id);
    if (id === this.id) this.draw();
  }

  add(files) {
    if (!this.takes()) return;
    const list = [...this.of(this.id)];
    let problem = '';
    for (const file of files) {
      const refused = this.problem([...list, file]);
      if (refused) problem = `${visible(file.name)} was not attached. ${refused}`;
      else list.push(file);
    }
    this.put(this.id, list);
    this.refuse(problem);
    $('text').focus();
  }

  // problem says why files cannot go with one message.
  problem(files) {
    const allowed = Math.min(mostBytes, Math.max(0, Math.floor(((this.limit() - room) * 3) / 4))); // as base64, they are longer
    if (files.length > most) return `A message takes at most ${most} files.`;
    if (files.reduce((sum, file) => sum + file.size, 0) > allowed) return `The files of a message may have ${size(allowed)} together.`;
    return '';
  }

  // take takes the files of a conversation off its list, because they are being sent.
  take(id) {
    this.under.set(id, this.of(id));
    this.put(id, []);
  }

  sent(id) {
    this.under.delete(id);
  }

  giveBack(id) {
    const list = this.under.get(id);
    this.under.delete(id);
    if (list?.length > 0) this.put(id, [...list, ...this.of(id)]);
  }

  remove(id, files) {
    this.put(id, this.of(id).filter(file => !files.includes(file)));
  }

  draw() {
    const list = this.of(this.id);
    $('files').hidden = list.length === 0;
    $('files').replaceChildren(...list.map(file => {
      const remove = button('×', () => {
        this.remove(this.id, [file]);
        $('text').focus();
      });
      remove.ariaLabel = `Remove ${visible(file.name)}`;
      return element('li', {}, element('bdi', {}, visible(file.name)), ` ${size(file.size)} `, remove);
    }));
  }
}

function carriesFiles(event) {
  return event.dataTransfer.types.includes('Files');
}

const unknown = 'application/octet-stream';

// readFiles returns files as a message has them: each as a data: URL.
export function readFiles(files) {
  return Promise.all(files.map(async file => {
    let bytes;
    try {
      bytes = await file.arrayBuffer();
    } catch {
      throw new Error(`${visible(file.name)} cannot be read any more. Remove it, or attach it again.`);
    }
    const mediaType = file.type && file.type !== unknown ? file.type : isText(bytes) ? 'text/plain' : unknown;
    return { url: await dataURL(new Blob([bytes], { type: mediaType })), mediaType, filename: nameOf(file) };
  }));
}

// nameOf returns the name of a file as the server accepts it, without what turns letters round. A long one keeps its ending.
function nameOf({ name }) {
  const letters = [...name.replace(/[\p{Cc}\p{Cs}\p{Bidi_Control}\ufffd]/gu, '_')];
  if (letters.length <= longestName) return letters.join('');
  const dot = letters.lastIndexOf('.');
  const ending = dot > 0 && letters.length - dot <= 20 ? letters.slice(dot) : [];
  return [...letters.slice(0, longestName - ending.length), ...ending].join('');
}

// isText is for files whose ending the browser does not know.
function isText(bytes) {
  try {
    return !new TextDecoder('utf-8', { fatal: true }).decode(bytes).includes('\0');
  } catch {
    return false;
  }
}

function dataURL(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener('load', () => resolve(reader.result));
    reader.addEventListener('error', () => reject(reader.error));
    reader.readAsDataURL(blob);
  });
}

function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1 << 20 ? `${Math.ceil(bytes / 1024).toLocaleString()} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`;
}
