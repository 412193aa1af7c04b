// A page that chats with the agents of a server, with the module that the server offers to every page. No build step.
import { Conversation } from '/helix.js';

const $ = id => document.getElementById(id);
const tokenKey = 'helix.token';
let agents = [];
let agent = null; // who is talked to
let chat = null; // the conversation
let approvals = new Map(); // what its calls that wait for approval are, by call: see lookUp

// get asks the server for something that is not part of a conversation.
async function get(path) {
  return JSON.parse(await getText(path));
}

async function getText(path) {
  const token = sessionStorage.getItem(tokenKey);
  const response = await fetch(path, token ? { headers: { authorization: `Bearer ${token}` } } : {});
  if (response.status === 401) {
    await login();
    return getText(path);
  }
  const text = await response.text();
  if (!response.ok) throw new Error(JSON.parse(text).error);
  return text;
}

// login asks for a token. It is kept until the tab is closed.
function login() {
  const dialog = $('login');
  dialog.showModal();
  return new Promise(done => {
    dialog.addEventListener('close', () => {
      sessionStorage.setItem(tokenKey, $('token').value);
      done();
    }, { once: true });
  });
}

function notice(text) {
  $('notice').textContent = text;
  $('notice').hidden = !text;
}

// attempt shows what goes wrong.
async function attempt(work) {
  notice('');
  try {
    await work();
  } catch (error) {
    notice(error.message);
  }
}

// open goes to a conversation: to its history, and to what is being said in it now.
function open(name, id) {
  chat?.close();
  approvals = new Map();
  agent = agents.find(a => a.name === name) ?? agents[0];
  const mine = new Conversation({
    id: id ?? `${agent.name}-${Date.now().toString(36)}${Math.random().toString(36).slice(2, 6)}`,
    agent: agent.name,
    token: sessionStorage.getItem(tokenKey) ?? undefined,
    fetch: (address, request) => fetch(address, withSeen(address, request)),
    onchange: changed => {
      if (changed === chat) render();
    },
  });
  chat = mine;
  location.hash = `${encodeURIComponent(agent.name)}/${encodeURIComponent(chat.id)}`;
  render();
  $('text').focus();
  return id ? attempt(() => mine.load()) : undefined;
}

async function say(text) {
  await attempt(() => chat.send(text));
  await attempt(list);
}

// list shows the conversations there are.
async function list() {
  const page = await get('/sessions?roots=true&limit=30');
  $('sessions').replaceChildren(...page.items.map(s =>
    entry(s.agentType, `${s.status} · ${when(s.updatedAt)}`, s.sessionId, s.sessionId === chat?.id, () => open(s.agentType, s.sessionId))));
}

function when(time) {
  const at = new Date(time);
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString([], { timeStyle: 'short' }) : at.toLocaleDateString([], { dateStyle: 'medium' });
}

function entry(name, detail, title, current, onclick) {
  const button = element('button', { onclick, title }, name, element('small', {}, detail));
  button.setAttribute('aria-current', current);
  return element('li', {}, button);
}

function element(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter(child => child != null));
  return node;
}

function render() {
  const busy = chat.status === 'streaming';
  $('agent').textContent = agent.name;
  $('about').textContent = $('about').title = agent.description ?? '';
  $('session').textContent = chat.id;
  $('send').hidden = busy;
  $('stop').hidden = !busy;
  $('agents').replaceChildren(...agents.map(a => entry(a.name, a.description ?? '', a.description ?? '', a === agent, () => open(a.name))));
  const view = $('transcript');
  const atEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
  const waiting = new Set(chat.waiting().map(part => part.toolCallId));
  const shown = chat.messages.map(message =>
    element('div', { className: `message ${message.role}` }, ...message.parts.map(part => showPart(part, waiting))));
  view.replaceChildren(...(shown.length > 0 ? shown : [welcome()]));
  if (atEnd) view.scrollTop = view.scrollHeight;
}

// welcome says what the agent is for. A description may end in what there is to say to it: Say "…" or "…".
function welcome() {
  const [about, rest = ''] = (agent.description ?? '').split(/ Say (?=")/);
  const offers = [...rest.matchAll(/"([^"]+)"/g)].map(([, words]) => words);
  return element('div', { className: 'empty' }, element('p', {}, about),
    ...offers.map(words => element('button', { type: 'button', onclick: () => say(words) }, words)));
}

function showPart(part, waiting) {
  switch (part.type) {
    case 'text':
      return element('div', { className: 'text' }, part.text);
    case 'reasoning':
      return element('details', { className: 'reasoning' }, element('summary', {}, 'Thoughts'), element('div', { className: 'text' }, part.text));
    case 'file':
      return showFile(part);
    case 'dynamic-tool':
      return showTool(part, waiting.has(part.toolCallId));
    case 'data-output':
      return card('output', '', part.data);
    case 'data-subagent':
      return showSubAgent(part.data);
    default:
      return null;
  }
}

// showFile shows a picture that came with the message. One that is elsewhere is a link: to load it would tell its server
// who looks at the conversation, and when.
function showFile({ url, mediaType, filename }) {
  if (/^data:/i.test(url)) {
    return mediaType?.startsWith('image/')
      ? element('img', { src: url, alt: filename ?? 'an image' })
      : element('a', { href: url, download: filename ?? '' }, filename ?? 'a file');
  }
  const name = visible(filename ? `${filename} (${url})` : url);
  return /^https?:/i.test(url) ? element('a', { href: url, target: '_blank', rel: 'noopener noreferrer' }, name) : element('span', {}, name);
}

const states = {
  'input-streaming': 'being written', 'input-available': 'running', 'approval-requested': 'waits for approval',
  'approval-responded': 'answered', 'output-available': 'done', 'output-error': 'failed', 'output-denied': 'not approved',
};

// Calls of agents are tools with a prefix to their names.
const prefix = /^(subagent|companion)__/;

function showTool(part, waits) {
  // A call of an agent that waits for somebody says so as its result.
  const below = prefix.test(part.toolName) && part.output?.status === 'waiting';
  const state = waits ? 'waits for you' : below ? 'waits' : states[part.state] ?? part.state;
  const title = visible(part.toolName.replace(prefix, ''));
  if (waits && part.state === 'approval-requested') return showApproval(card(title, state), part);
  const asked = waits && Array.isArray(part.input?.options) ? part.input.question : undefined;
  const shown = card(title, state, asked ?? part.input);
  if (part.state === 'output-error' || part.state === 'output-denied') shown.classList.add('failed');
  if (part.output !== undefined && !below) shown.append(value(part.output));
  if (part.errorText) shown.append(element('div', { className: 'error' }, part.errorText));
  if (waits) question(shown, part);
  return shown;
}

// showApproval shows a call that the user decides on, whole, and lets them decide once it is shown.
function showApproval(shown, part) {
  shown.classList.add('waiting');
  const call = approvals.get(part.toolCallId) ?? lookUp(part.toolCallId);
  if (call.problem) {
    shown.append(element('div', { className: 'error' }, call.problem));
    offers(shown, [['Try again', () => { lookUp(part.toolCallId); render(); }]]);
  } else if (!call.whole) {
    shown.append(element('div', { className: 'state' }, 'Loading the call …'));
  } else {
    call.tool = part.toolName;
    shown.append(call.whole);
    offers(shown, [['Approve', () => chat.approve(part), 'main'], ['Deny', () => chat.deny(part)]]);
  }
  return shown;
}

// lookUp asks the server what a call is: numbers that JavaScript would round are shown as they are.
function lookUp(id) {
  const mine = approvals;
  const call = {};
  mine.set(id, call);
  getText(`/status?sessionId=${encodeURIComponent(chat.id)}`).then(text => {
    const found = read(text).get('pending').items.find(call => call.get('toolCallId').value === id);
    if (!found) throw new Error('it is not waiting any more');
    const whole = element('pre', { className: 'whole' });
    draw(found.get('input'), whole, '\n');
    call.whole = whole;
  }).catch(error => {
    call.problem = `The call cannot be shown: ${error.message}`;
  }).then(() => {
    if (mine !== approvals) return;
    render();
    const shown = call.whole?.closest('.card');
    if (shown?.offsetHeight > $('transcript').clientHeight) shown.scrollIntoView(); // one reads it from its beginning
  });
  return call;
}

// withSeen adds to an approval what was drawn, to the letter: the server refuses it if the call is another.
function withSeen(address, request) {
  if (!address.endsWith('/submit-tool-result') || !request.body) return request;
  const answer = JSON.parse(request.body);
  const { tool, whole } = approvals.get(answer.toolCallId) ?? {};
  if (!answer.approval?.approved || !whole) return request;
  const seen = `{"toolName":${JSON.stringify(tool)},"input":${whole.textContent}}`;
  return { ...request, body: `${request.body.slice(0, -1)},"seen":${seen}}` };
}

// Value is JSON as it is written: JSON.parse would round numbers and forget all but the last of equal keys.
class Value {
  constructor(fields) {
    Object.assign(this, fields);
  }

  get(key) {
    return this.entries?.find(([name]) => name === key)?.[1];
  }
}

// read reads JSON that is known to be valid.
function read(text) {
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

// draw writes a value as JSON that stands for the same, with a line per key. Keys and values stand apart from each other, so
// that none changes the order in which another is shown.
function draw(value, into, line) {
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
function visible(text) {
  return text.replace(/(?! )[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/gu, unseen =>
    Array.from({ length: unseen.length }, (_, i) => `\\u${unseen.charCodeAt(i).toString(16).padStart(4, '0')}`).join(''));
}

function showSubAgent(data) {
  const tools = (data.tools ?? []).map(tool => `${tool.toolName} (${tool.state})`).join(', ');
  return element('div', { className: 'nested' },
    element('small', {}, `${data.agent} · ${data.status}${tools && ` · ${tools}`}`),
    element('div', { className: 'text' }, data.text ?? ''));
}

function card(title, state, input) {
  return element('div', { className: 'card' },
    element('div', { className: 'head' }, element('strong', {}, title), element('span', { className: 'state' }, state)),
    input === undefined || Object.keys(input).length === 0 ? null : value(input));
}

// value shows JSON, on one line if it is short.
function value(of) {
  if (typeof of === 'string') return element('pre', {}, of);
  const short = JSON.stringify(of);
  const text = short.length <= 120 ? short : JSON.stringify(of, null, 2);
  return element('pre', {}, text.split('\n').map(visible).join('\n'));
}

// question lets the user answer a tool of the client's: with its options, or, where it has none, with whatever is typed.
function question(shown, part) {
  shown.classList.add('waiting');
  if (Array.isArray(part.input?.options)) {
    offers(shown, part.input.options.map(option => [String(option), () => chat.result(part, option)]));
  } else {
    const field = element('input', { placeholder: 'your answer', ariaLabel: 'your answer' });
    offers(shown, [['Answer', () => chat.result(part, typed(field.value)), 'main']], field);
  }
}

// offers adds buttons: a label and what it does each.
function offers(shown, all, ...before) {
  shown.append(element('div', { className: 'actions' }, ...before, ...all.map(([label, answer, className = '']) =>
    element('button', { type: 'button', className, onclick: () => attempt(async () => { await answer(); await list(); }) }, label))));
}

// typed takes JSON for what it is, and all else as text.
function typed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

$('composer').addEventListener('submit', event => {
  event.preventDefault();
  const text = $('text').value.trim();
  if (!text || chat?.status === 'streaming' || !agent) return;
  $('text').value = '';
  say(text);
});
$('text').addEventListener('keydown', event => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $('composer').requestSubmit();
  }
});
$('stop').addEventListener('click', () => attempt(() => chat.stop('stopped by the user')));

await attempt(async () => {
  agents = (await get('/agents')).items;
  const [name, id] = location.hash.slice(1).split('/').map(decodeURIComponent);
  open(name, id);
  await list();
});
