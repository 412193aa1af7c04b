// A page that chats with the agents of a server, with the module that the server offers to every page. No build step.
import { Conversation } from '/helix.js';

const $ = id => document.getElementById(id);
const tokenKey = 'helix.token';
let agents = [];
let agent = null; // who is talked to
let chat = null; // the conversation

// get asks the server for something that is not part of a conversation.
async function get(path) {
  const token = sessionStorage.getItem(tokenKey);
  const response = await fetch(path, token ? { headers: { authorization: `Bearer ${token}` } } : {});
  if (response.status === 401) {
    await login();
    return get(path);
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
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
  agent = agents.find(a => a.name === name) ?? agents[0];
  const mine = new Conversation({
    id: id ?? `${agent.name}-${Date.now().toString(36)}${Math.random().toString(36).slice(2, 6)}`,
    agent: agent.name,
    token: sessionStorage.getItem(tokenKey) ?? undefined,
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
      return part.mediaType?.startsWith('image/')
        ? element('img', { src: part.url, alt: part.filename ?? 'an image' })
        : element('a', { href: part.url, download: part.filename ?? '' }, part.filename ?? 'a file');
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
  const asked = waits && Array.isArray(part.input?.options) ? part.input.question : undefined;
  const shown = card(part.toolName.replace(prefix, ''), state, asked ?? part.input);
  if (part.state === 'output-error' || part.state === 'output-denied') shown.classList.add('failed');
  if (part.output !== undefined && !below) shown.append(value(part.output));
  if (part.errorText) shown.append(element('div', { className: 'error' }, part.errorText));
  if (waits) question(shown, part);
  return shown;
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
  return element('pre', {}, short.length <= 120 ? short : JSON.stringify(of, null, 2));
}

// question lets the user answer a call: an approval with two buttons, a tool of the client's with its options, or, where
// it has none, with whatever is typed.
function question(shown, part) {
  shown.classList.add('waiting');
  const actions = element('div', { className: 'actions' });
  const offer = (label, answer, className = '') => actions.append(
    element('button', { type: 'button', className, onclick: () => attempt(async () => { await answer(); await list(); }) }, label));
  if (part.state === 'approval-requested') {
    offer('Approve', () => chat.approve(part), 'main');
    offer('Deny', () => chat.deny(part));
  } else if (Array.isArray(part.input?.options)) {
    for (const option of part.input.options) offer(String(option), () => chat.result(part, option));
  } else {
    const field = element('input', { placeholder: 'your answer', ariaLabel: 'your answer' });
    actions.append(field);
    offer('Answer', () => chat.result(part, typed(field.value)), 'main');
  }
  shown.append(actions);
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
