// Unsent text of each conversation, kept until the tab is closed.
import * as kept from './kept.js';

const longest = 100_000; // longer text is kept in the page only

export function write(id, text) {
  put(`draft/${id}`, text);
}

// sending records text that is being sent; sent removes it when it has arrived or was returned.
export function sending(id, text) {
  put(`sending/${id}`, text);
}

export function sent(id) {
  put(`sending/${id}`, '');
}

// of returns all unsent text.
export function of(id) {
  return ['sending', 'draft'].map(kind => kept.get(`${kind}/${id}`)).filter(Boolean).join('\n');
}

function put(key, text) {
  kept.put(key, text.length > longest ? '' : text);
}
