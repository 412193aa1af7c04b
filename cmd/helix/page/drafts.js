// Unsent text of each conversation, kept until the tab is closed.

const longest = 100_000; // longer text is kept in the page only

export function write(id, text) {
  put(`helix.draft/${id}`, text);
}

// sending records text that is being sent; sent removes it when it has arrived or was returned.
export function sending(id, text) {
  put(`helix.sending/${id}`, text);
}

export function sent(id) {
  put(`helix.sending/${id}`, '');
}

// of returns all unsent text.
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
    sessionStorage.removeItem(key); // the browser's storage is full
  }
}
