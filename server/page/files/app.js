// The chat page. It uses the module helix.js, which the server offers to every page. No build step.
import { Conversation, newID } from '../helix.js';
import { $, keepFocus, nextAnswer, setText } from './dom.js';
import { base, canSignOut, download, get, login, signOut, token } from './api.js';
import { Approvals } from './approvals.js';
import { about, compactingNotice, Transcript } from './transcript.js';
import { Lists } from './lists.js';
import { visible } from './exact.js';
import { Attached, readFiles } from './attached.js';
import * as drafts from './drafts.js';

let agents = [];
let agent = null; // the current agent
let chat = null; // the conversation
let known = {}; // its entry in the server's list: see news
let maxBody = 4 << 20; // how many bytes a request may have
const reading = new Set(); // the conversations whose files are being read for a message
let away = false; // the server does not respond to the lists' requests
const desk = {
  approvals: null,
  approve: part => act(() => chat.approve(part)),
  deny: part => act(() => chat.deny(part)),
  result: (part, value) => act(() => chat.result(part, value)),
  question: part => chat.question(part),
  whole: part => chat.whole(part),
  agent: () => agent.name,
  reply: (part, answer) => answerTo(part, () => chat.reply(part, answer)),
  decline: part => answerTo(part, () => chat.decline(part)),
  lookUp: part => { desk.approvals.lookUp(part.toolCallId); draw(); },
  download: (tool, { blobs, json }) => act(() => download(
    blobs.map(ref => `sessions/${encodeURIComponent(chat.id)}/blobs/${encodeURIComponent(ref)}`), `${tool}.${json ? 'json' : 'txt'}`)),
  resume: () => act(() => chat.resume()),
  retry: () => act(() => chat.retry()),
  say: words => send(words, []),
};
const transcript = new Transcript(desk);
const attached = new Attached(notice, () => maxBody);
const lists = new Lists({ open, news, away: is => { away = is; drawConnection(); } });

// notice shows an error until it is dismissed.
function notice(text) {
  keepFocus(() => {
    setText($('problem'), text);
    $('notice').hidden = !text;
  });
}

// act runs an action on the conversation. A failed run is shown in the transcript; other errors are shown as a notice.
async function act(work) {
  const mine = chat;
  try {
    await work();
  } catch (error) {
    if (mine !== chat) return;
    if (error.status === 401) await signInAgain();
    else if (!chat.failure || error.status) notice(error.message);
  }
}

// answerTo answers a question. One that still waits, because the answer was refused, gets the focus again.
async function answerTo(part, work) {
  const asked = chat.question(part)?.questionId;
  notice('');
  await act(work);
  const card = document.querySelector(`#messages .card.waiting[data-key="${CSS.escape(part.toolCallId)}"]`);
  if (card && chat.question(part)?.questionId === asked) card.querySelector('input, select, textarea, button').focus();
}

async function signInAgain() {
  await login('Your token is not accepted any more.');
  await open(agent.name, chat.id);
}

// open opens a conversation with its history and the reply in progress. Without an id it starts a new one.
async function open(name, id) {
  if (id && !name) {
    const of = lists.sessions.find(session => session.sessionId === id);
    try {
      name = of?.agentType ?? (await get(`status?sessionId=${encodeURIComponent(id)}`)).agentType;
    } catch (error) {
      notice(error.message);
      return;
    }
  }
  chat?.close();
  known = {};
  notice('');
  agent = agents.find(a => a.name === name) ?? (name && id ? { name: visible(name).slice(0, 64), missing: true } : agents[0]);
  const mine = new Conversation({
    id: id ?? `${agent.name}-${Date.now().toString(36)}${Math.random().toString(36).slice(2, 6)}`,
    agent: agent.name,
    url: base.href,
    token: token(),
    fetch: (address, request) => fetch(address, approvals.withSeen(address, request)),
    onchange: (changed, message) => {
      if (changed === chat) draw(message);
    },
  });
  const approvals = new Approvals(mine.id, {
    changed: call => {
      if (mine !== chat) return;
      draw();
      transcript.reveal(call.whole?.closest('.card'));
    },
    stale: () => refresh(mine),
  });
  chat = mine;
  desk.approvals = approvals;
  go(`#${encodeURIComponent(agent.name)}/${encodeURIComponent(chat.id)}`);
  transcript.clear();
  const lost = { ...drafts.of(chat.id), files: attached.show(chat.id) };
  const text = join(lost.sending, lost.typed);
  $('text').value = text;
  lists.show(agents, agent, chat.id, !!id);
  draw();
  $('text').focus();
  if (!id) return;
  await act(() => mine.load());
  if (mine !== chat || !lost.message) return;
  // The message that was being sent when the conversation was left may have arrived.
  if (chat.messages.some(message => message.id === lost.message)) {
    if ($('text').value === text) $('text').value = lost.typed;
    attached.remove(chat.id, lost.files);
  }
  drafts.sent(chat.id);
  drafts.write(chat.id, $('text').value);
}

function join(...texts) {
  return texts.filter(Boolean).join('\n');
}

// go changes the address. The first change replaces it, because there is nothing to go back to.
function go(hash) {
  if (location.hash === hash) return;
  if (location.hash) location.hash = hash;
  else history.replaceState(null, '', hash);
}

// refresh reloads a conversation that has changed elsewhere. If the server is unreachable, the next poll retries.
async function refresh(mine) {
  if (mine !== chat || mine.status === 'streaming' || known.refreshing) return;
  known.refreshing = true;
  await mine.load().catch(() => { known.print = undefined; });
  known.refreshing = false;
}

// news receives the open conversation's entry in the server's lists.
function news(current, waiting) {
  const print = JSON.stringify([current?.activity, current?.turn, current?.messageCount, current?.sequence, current?.updatedAt, waiting]);
  known.status = current?.status;
  const seen = known.print;
  known.print = print;
  if (!current || print === seen) return;
  if (chat.status === 'streaming') {
    known.print = undefined; // its end is not known yet
  } else if (seen !== undefined || !agrees(current.activity, waiting)) {
    refresh(chat);
  } else {
    catchUp(chat);
  }
  draw();
}

// catchUp reloads a conversation that went on elsewhere between what the page read and the entry in the lists that it compares
// later ones with.
async function catchUp(mine) {
  const shown = mine.messages.findLast(message => message.role === 'assistant')?.metadata?.runId;
  const status = await get(`status?sessionId=${encodeURIComponent(mine.id)}`).catch(() => {});
  if (!status) known.print = undefined; // the next entry asks again
  else if (status.runId !== shown) refresh(mine);
}

// agrees reports whether the page shows the current state of the conversation.
function agrees(activity, waiting) {
  switch (activity) {
    case 'running':
      return false;
    case 'waiting':
      return JSON.stringify(chat.waiting().map(part => chat.question(part)?.questionId ?? part.toolCallId).sort()) === JSON.stringify(waiting.sort());
    case 'failed':
      return chat.status === 'error';
    default:
      return chat.status === 'ready';
  }
}

// say sends what was typed and attached.
async function say(text, { abandonPending } = {}) {
  const files = attached.of(chat.id);
  const problem = attached.problem(files);
  if (problem) {
    notice(problem);
    return;
  }
  await send(text, files, { abandonPending, typed: true });
}

// send sends a message. If it does not arrive, its text returns to the input field and its files to their list. typed is set
// if it is what the person has typed and attached.
async function send(text, files, { abandonPending, typed } = {}) {
  const mine = chat;
  if (mine.status === 'streaming' || reading.has(mine.id)) return;
  if (mine.status === 'waiting' && !abandonPending) {
    await askFirst(text);
    return;
  }
  transcript.goToEnd();
  const messageId = newID();
  drafts.sending(mine.id, text, messageId);
  if (typed) {
    attached.take(mine.id);
    $('text').value = '';
    drafts.write(mine.id, '');
  }
  $('text').focus();
  let parts = [];
  if (files.length > 0) {
    reading.add(mine.id);
    draw();
    try {
      parts = await readFiles(files);
    } catch (error) {
      giveTextBack(mine, text);
      if (mine === chat) notice(error.message);
      return;
    } finally {
      reading.delete(mine.id);
      if (mine === chat) draw();
    }
  }
  try {
    await mine.send(text, { files: parts, messageId, abandonPending });
  } catch (error) {
    if (!error.status) {
      if (mine === chat && !mine.failure) notice(error.message);
      return;
    }
    await giveBack(mine, text, error);
  }
}

function giveTextBack(mine, text) {
  drafts.sent(mine.id);
  attached.giveBack(mine.id);
  if (mine === chat) $('text').value = join(text, $('text').value);
  drafts.write(mine.id, mine === chat ? $('text').value : join(text, drafts.of(mine.id).typed));
}

async function giveBack(mine, text, error) {
  giveTextBack(mine, text);
  if (mine !== chat) return;
  if (error.code === 'cancelled') return;
  if (error.status === 401) await signInAgain();
  else if (mine.status === 'waiting') await askFirst(text); // it has started to wait since
  else if (error.status === 413) notice(`The message was not sent, because it is too large: ${error.message}.`);
  else notice(`The message was not sent. ${error.message}`);
}

// askFirst asks the user what to do with a message to an agent that waits for an answer.
async function askFirst(text) {
  if ($('text').value.trim() !== text) $('text').value = text;
  const dialog = $('ask');
  if (dialog.open) return;
  dialog.returnValue = '';
  dialog.showModal();
  await new Promise(closed => dialog.addEventListener('close', closed, { once: true }));
  if (dialog.returnValue === 'continue') await say(text, { abandonPending: true });
  else (nextAnswer() ?? $('text')).focus();
}

// standing returns the conversation's status as one word.
function standing() {
  if (chat.messages.at(-1)?.pending || reading.has(chat.id)) return 'sending';
  if (chat.status === 'streaming' || chat.status === 'waiting') return chat.status;
  if (chat.failure) return 'failed';
  return chat.stopped || known.status === 'paused' ? 'stopped' : 'idle';
}

// draw shows the conversation. If only one message has changed, it updates only that one.
function draw(message) {
  const state = standing();
  const busy = state === 'streaming' || state === 'sending';
  keepFocus(() => {
    setText($('agent'), agent.name);
    setText($('about'), agent.missing ? 'not on this server' : about(agent));
    $('text').disabled = $('send').disabled = $('attach').disabled = !!agent.missing;
    $('text').placeholder = agent.missing ? 'This server does not have the agent' : 'Say something';
    setText($('session'), chat.id);
    setText($('stop'), state === 'sending' ? 'Cancel' : 'Stop');
    $('send').hidden = busy;
    $('stop').hidden = !busy;
  });
  transcript.draw(chat, agent, state, message);
  drawConnection();
  if (message && !known.talking) lists.look(); // it runs
  known.talking = !!message || (busy && known.talking);
  if (!!chat.compacting !== !!known.compacting) {
    known.compacting = !!chat.compacting;
    if (known.compacting) setText($('live'), `${compactingNotice}.`);
  }
  if (state === known.state) return;
  if (known.state === 'sending' && state === 'streaming') {
    drafts.sent(chat.id);
    attached.sent(chat.id);
  }
  announce(state, known.state);
  known.state = state;
  if (busy) known.print = undefined; // what the server will list is what is shown here
  lists.look();
}

// announce reports changes to screen readers.
function announce(state, before) {
  const words = {
    streaming: `${agent.name} is working.`, waiting: `${agent.name} is waiting for your answer.`, stopped: `${agent.name} was stopped.`,
    failed: chat.failure?.error, idle: before === 'streaming' ? `${agent.name} replied.` : '',
  };
  setText($('live'), words[state] ?? '');
}

const recoveryTime = 10_000; // how long a recovery is shown
let recovery; // the conversation that has recovered, and whether that was shown long enough

function drawConnection() {
  const connection = chat?.connection;
  let text = '';
  if (connection === 'lost' || (away && connection !== 'back')) text = 'Reconnecting…';
  else if (connection === 'back') text = 'Connected again. Waiting for the run to continue…';
  if (connection !== 'recovered') {
    recovery = undefined;
  } else if (recovery?.chat !== chat) {
    const mine = (recovery = { chat, told: false });
    setTimeout(() => { mine.told = true; drawConnection(); }, recoveryTime);
  }
  if (recovery && !recovery.told && !text) text = 'Recovered.';
  setText($('connection'), text);
  $('connection').className = recovery ? 'well' : '';
}

$('composer').addEventListener('submit', event => {
  event.preventDefault();
  const text = $('text').value.trim();
  if (chat && (text || attached.of(chat.id).length > 0)) say(text);
});
$('text').addEventListener('keydown', event => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $('composer').requestSubmit();
  }
});
$('text').addEventListener('input', () => drafts.write(chat.id, $('text').value));
$('stop').addEventListener('click', () => {
  if (standing() === 'sending') chat.cancel();
  else act(() => chat.stop('stopped by the user'));
});
$('new').addEventListener('click', () => open(agent.missing ? undefined : agent.name));
$('dismiss').addEventListener('click', () => notice(''));
$('signout').addEventListener('click', () => signOut().catch(error => notice(error.message)));
addEventListener('hashchange', () => {
  const [name, id] = address();
  if (chat && id && id !== chat.id) open(name, id);
});

addEventListener('pageshow', event => {
  if (event.persisted) location.reload(); // it was left, and another user may have signed in since
});

function address() {
  try {
    return location.hash.slice(1).split('/').map(decodeURIComponent);
  } catch {
    return []; // it is not an address of the page
  }
}

try {
  const offered = await get('agents');
  agents = offered.items;
  maxBody = offered.maxBody ?? maxBody;
  $('signout').hidden = !canSignOut();
  if (agents.length > 0) open(...address());
  else notice('This server offers no agents.');
} catch (error) {
  notice(error.message);
}
