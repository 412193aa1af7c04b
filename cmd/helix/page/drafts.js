// What was typed and not sent, of each conversation, until the tab is closed.

const longest = 100_000; // what is longer is kept in the page alone

export function write(id, text) {
  put(`helix.draft/${id}`, text);
}

// sending notes what is on its way; sent, that it has arrived or was given back.
export function sending(id, text) {
  put(`helix.sending/${id}`, text);
}

export function sent(id) {
  put(`helix.sending/${id}`, '');
}

// of gives all that was not sent.
export function of(id) {
  return ['sending', 'draft'].map(kind => sessionStorage.getItem(`helix.${kind}/${id}`)).filter(Boolean).join('\n');
}

function put(key, text) {
  if (!text || text.length > longest) {
    sessionStorage.removeItem(key);
    return;
  }
  try {
    sessionStorage.setItem(key, text);
  } catch {
    sessionStorage.removeItem(key); // the browser gives no more room
  }
}
