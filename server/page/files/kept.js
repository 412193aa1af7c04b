// What the page keeps until the tab is closed. Other pages of the same origin have keys of their own.

const prefix = `helix:${new URL('..', import.meta.url).pathname}:`;

export function get(key) {
  return sessionStorage.getItem(prefix + key);
}

// put keeps a text; an empty one is forgotten.
export function put(key, text) {
  try {
    if (text) sessionStorage.setItem(prefix + key, text);
    else sessionStorage.removeItem(prefix + key);
  } catch {
    sessionStorage.removeItem(prefix + key); // the browser's storage is full
  }
}

export function clear() {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix)) sessionStorage.removeItem(key);
}
