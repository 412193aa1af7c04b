// Unsent text of each conversation, kept until the tab is closed.
import * as kept from './kept.js';

const longest = 100_000; // longer text is kept in the page only

export function write(id, text) {
  put(`draft/${id}`, text);
}

// sending records text that is being sent, and the id of its message; sent removes them when it has arrived or was returned.
export function sending(id, text, message) {
  put(`sending/${id}`, text);
  kept.put(`message/${id}`, message);
}

export function sent(id) {
  put(`sending/${id}`, '');
  kept.put(`message/${id}`, '');
}

// of returns the text that was being sent when the conversation was left, the id of its message, and the text typed since.
export function of(id) {
  const [sending, message, typed] = ['sending', 'message', 'draft'].map(kind => kept.get(`${kind}/${id}`) ?? '');
  return { sending, message, typed };
}

function put(key, text) {
  kept.put(key, text.length > longest ? '' : text);
}
