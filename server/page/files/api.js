// Requests outside of a conversation, and signing in.
import { $, element } from './dom.js';
import * as kept from './kept.js';

// The page is served beside the API, under whatever prefix both have.
export const base = new URL('..', import.meta.url);

export const token = () => kept.get('token') ?? undefined;

// Where the program that serves the page has people sign in and out; empty if they enter a token.
const { signIn, signOut: leave } = document.documentElement.dataset;

// Refusal is a request that the server refused.
class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function get(path) {
  return JSON.parse(await getText(path));
}

const tries = 10; // while the server is overloaded

export async function getText(path) {
  return (await getResponse(path)).text();
}

// download saves the contents of several paths, one after another, as one file. A link could not sign in.
export async function download(paths, name) {
  const contents = [];
  for (const path of paths) contents.push(await (await getResponse(path)).blob());
  const url = URL.createObjectURL(new Blob(contents, { type: 'application/octet-stream' }));
  element('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // once the browser has begun to save it
}

async function getResponse(path, left = tries) {
  const response = await ask(path, token());
  if (response.status === 401) {
    await login(token() ? 'Your token is not accepted any more.' : '');
    return getResponse(path);
  }
  if ((response.status === 429 || response.status === 503) && left > 1) {
    const seconds = Number(response.headers.get('retry-after')) || 1;
    await new Promise(over => setTimeout(over, seconds * 1000));
    return getResponse(path, left - 1);
  }
  if (!response.ok) throw new Refusal(reason(await response.text(), response), response.status);
  return response;
}

function ask(path, bearer) {
  return fetch(new URL(path, base), bearer ? { headers: { authorization: `Bearer ${bearer}` } } : {});
}

// reason returns the error in a response, which may come from a proxy.
function reason(text, response) {
  try {
    return JSON.parse(text).error;
  } catch {
    return `The server answered ${response.status} ${response.statusText}`.trim();
  }
}

let signingIn; // while the dialog is open

// login asks for a token until the server accepts one. It is kept until the tab is closed or the user signs out. If the
// program has people sign in elsewhere, login sends them there, and what they have typed is there when they come back.
export function login(problem = '') {
  signingIn ??= new Promise(done => {
    const dialog = $('login');
    if (signIn) {
      $('who').textContent = problem ? 'You are not signed in any more.' : 'Sign in to see your conversations.';
      $('signin').href = withReturn(signIn);
      $('elsewhere').hidden = false;
      $('bearer').hidden = true;
      dialog.oncancel = event => event.preventDefault();
      dialog.onclose = () => dialog.showModal();
      dialog.showModal();
      return;
    }
    const complain = text => {
      $('wrong').textContent = text;
      $('wrong').hidden = !text;
    };
    complain(problem);
    dialog.oncancel = event => event.preventDefault();
    dialog.onclose = () => dialog.showModal(); // browsers close it at the second Escape, even if the page prevents it
    dialog.querySelector('form').onsubmit = async event => {
      event.preventDefault();
      complain('');
      const given = $('token').value.trim();
      try {
        const response = await ask('agents', given);
        if (response.ok) {
          kept.put('token', given);
          $('token').value = '';
          dialog.onclose = null;
          dialog.close();
          signingIn = undefined;
          done();
          return;
        }
        complain(response.status === 401 ? 'This token is not accepted.' : reason(await response.text(), response));
      } catch {
        complain('The server cannot be reached.');
      }
      $('token').select();
    };
    dialog.showModal();
  });
  return signingIn;
}

// withReturn adds the page's address to that of a sign-in, so that it can send people back.
function withReturn(address) {
  const to = new URL(address, base);
  to.searchParams.set('return', location.pathname + location.search + location.hash);
  return /^https?:$/.test(to.protocol) ? to.href : '';
}

// canSignOut reports whether there is something to sign out of.
export const canSignOut = () => !!(token() || leave);

export async function signOut() {
  if (leave) {
    const response = await fetch(new URL(leave, base), { method: 'POST' });
    if (!response.ok) throw new Refusal(`You are still signed in: ${reason(await response.text(), response)}`, response.status);
  }
  kept.clear(); // including drafts
  addEventListener('pagehide', () => document.body.replaceChildren()); // a browser may show this page again as it was left
  location.replace(base);
}
