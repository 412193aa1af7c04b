// A page that chats with the agents of a server, over the same routes that an application uses: the chat wire for what is
// said, the session routes for the list. No build step; everything is in this file.
import { chatStream, applyChunk } from './chat.js';

const $ = id => document.getElementById(id);
const tokenKey = 'helix.token';
let agents = [];
let agent = null; // who is talked to
let session = ''; // its id
let messages = []; // the transcript, as UI messages
let pending = []; // calls that wait for somebody
let reading = null; // the AbortController of the stream that is being read

async function call(method, path, body) {
  const headers = { accept: 'application/json' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  const token = sessionStorage.getItem(tokenKey);
  if (token) headers.authorization = `Bearer ${token}`;
  const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: reading?.signal });
  if (response.status === 401) {
    await login();
    return call(method, path, body);
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Error(problem.error ?? `the server answered ${response.status}`);
  }
  return response;
}

const get = async path => (await call('GET', path)).json();

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

const newID = prefix => `${prefix}-${crypto.randomUUID?.() ?? Math.random().toString(36).slice(2)}`;
const chatPath = rest => `/chat/${encodeURIComponent(session)}/${rest}`;

// open goes to a conversation: to its history, and to what is being said in it now.
async function open(name, id) {
  reading?.abort();
  reading = null;
  agent = agents.find(a => a.name === name) ?? agents[0];
  session = id ?? newID(agent.name);
  messages = [];
  pending = [];
  notice('');
  location.hash = `${encodeURIComponent(agent.name)}/${encodeURIComponent(session)}`;
  render();
  if (id) {
    await guarded(async () => {
      messages = (await get(chatPath('messages'))).messages;
      await follow(() => call('GET', chatPath('stream')));
    });
  }
  $('text').focus();
}

// guarded shows what goes wrong instead of throwing it. What was aborted is no fault.
async function guarded(work) {
  try {
    await work();
  } catch (error) {
    if (error.name !== 'AbortError') notice(error.message);
  }
}

// follow reads a reply as it comes. A stream that breaks off is taken up again: the server repeats the reply.
async function follow(request) {
  const mine = new AbortController();
  reading = mine;
  render();
  try {
    for (let attempt = 0; ; attempt++) {
      let complete = false;
      try {
        const response = await request();
        if (response.status === 204) return;
        notice('');
        for await (const chunk of chatStream(response.body)) {
          attempt = 0;
          if (mine.signal.aborted) return;
          complete ||= chunk.type === 'finish' || chunk.type === 'abort' || chunk.type === 'error';
          if (chunk.type === 'error') notice(chunk.errorText);
          applyChunk(messages, chunk);
          render();
        }
      } catch (error) {
        if (mine.signal.aborted || attempt >= 20 || !(error instanceof TypeError)) throw error;
      }
      if (complete || mine.signal.aborted) return;
      notice('The connection was lost. Trying again…');
      await new Promise(done => setTimeout(done, Math.min(250 * 2 ** attempt, 4000)));
      request = () => call('GET', chatPath('stream'));
    }
  } finally {
    if (reading === mine) {
      reading = null;
      await guarded(settle);
    }
  }
}

// settle looks at what a reply has left open.
async function settle() {
  const of = session;
  const found = (await get(`/sessions/${encodeURIComponent(session)}/pending`)).items ?? [];
  if (of !== session) return;
  pending = found;
  render();
  await list();
}

async function say(text) {
  const message = { id: newID('msg'), role: 'user', parts: [{ type: 'text', text }] };
  messages.push(message);
  await guarded(() => follow(() => call('POST', '/chat', { id: session, agent: agent.name, messages: [message], trigger: 'submit-message' })));
}

// answer hands in what a call waits for, and follows how the agent goes on.
async function answer(wait, given) {
  await guarded(async () => {
    pending = pending.filter(p => p.toolCallId !== wait.toolCallId);
    render();
    const submitted = await (await call('POST', chatPath('submit-tool-result'), { toolCallId: wait.toolCallId, ...given })).json();
    if (submitted.outcome !== 'accepted') notice(`The answer was not taken: ${submitted.outcome.replaceAll('_', ' ')}.`);
    if (pending.length === 0) await follow(() => call('GET', chatPath('stream')));
  });
}

// list shows the conversations there are.
async function list() {
  const page = await get('/sessions?roots=true&limit=30');
  $('sessions').replaceChildren(...page.items.map(s => {
    const item = entry(s.sessionId, `${s.agentType} · ${s.status}`, s.sessionId === session);
    item.firstChild.addEventListener('click', () => open(s.agentType, s.sessionId));
    return item;
  }));
}

function entry(title, detail, current) {
  const button = element('button', {}, title, element('small', {}, detail));
  button.setAttribute('aria-current', current);
  button.title = title;
  return element('li', {}, button);
}

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node[name] = value;
  node.append(...children.filter(child => child != null));
  return node;
}

function render() {
  $('agent').textContent = agent?.name ?? '';
  $('about').textContent = agent?.description ?? '';
  $('session').textContent = session;
  $('send').hidden = reading !== null;
  $('stop').hidden = reading === null;
  $('agents').replaceChildren(...agents.map(a => {
    const item = entry(a.name, a.description, a === agent);
    item.firstChild.addEventListener('click', () => open(a.name));
    return item;
  }));
  const view = $('transcript');
  const atEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
  const shown = messages.map(showMessage);
  const asked = new Set(messages.flatMap(m => m.parts.map(p => p.toolCallId)));
  shown.push(...pending.filter(p => !asked.has(p.toolCallId)).map(p => showWait(p)));
  if (shown.length === 0) shown.push(element('p', { className: 'empty' }, agent ? agent.description : ''));
  view.replaceChildren(...shown);
  if (atEnd) view.scrollTop = view.scrollHeight;
}

function showMessage(message) {
  return element('div', { className: `message ${message.role}` }, ...message.parts.map(showPart));
}

function showPart(part) {
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
      return showTool(part);
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

function showTool(part) {
  const wait = pending.find(p => p.toolCallId === part.toolCallId);
  const shown = card(part.toolName, wait ? 'waits for you' : states[part.state] ?? part.state, part.input);
  if (part.state === 'output-error' || part.state === 'output-denied') shown.classList.add('failed');
  if (part.output !== undefined) shown.append(value(part.output));
  if (part.errorText) shown.append(element('div', { className: 'error' }, part.errorText));
  if (wait) question(shown, wait);
  return shown;
}

function showWait(wait) {
  const shown = card(wait.toolName, 'waits for you', wait.input);
  question(shown, wait);
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
    input === undefined ? null : value(input));
}

function value(of) {
  return element('pre', {}, typeof of === 'string' ? of : JSON.stringify(of, null, 1));
}

// question lets the user answer a call: an approval with two buttons, a tool of the client's with its options, or, where
// it has none, with whatever is typed.
function question(shown, wait) {
  shown.classList.add('waiting');
  const actions = element('div', { className: 'actions' });
  const choose = (label, given, className = '') =>
    actions.append(element('button', { type: 'button', className, onclick: () => answer(wait, given) }, label));
  if (wait.kind === 'approval') {
    choose('Approve', { approval: { approvalId: wait.approvalId, approved: true } }, 'main');
    choose('Deny', { approval: { approvalId: wait.approvalId, approved: false } });
  } else if (Array.isArray(wait.input?.options)) {
    for (const option of wait.input.options) choose(String(option), { result: option });
  } else {
    const field = element('input', { placeholder: 'your answer' });
    field.setAttribute('aria-label', 'your answer');
    actions.append(field, element('button', { type: 'button', className: 'main', onclick: () => answer(wait, { result: typed(field.value) }) }, 'Answer'));
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
  if (!text || reading || !agent) return;
  $('text').value = '';
  say(text);
});
$('text').addEventListener('keydown', event => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $('composer').requestSubmit();
  }
});
$('stop').addEventListener('click', () => guarded(() => call('POST', chatPath('interrupt'), { reason: 'stopped by the user' })));

await guarded(async () => {
  agents = (await get('/agents')).items;
  const [name, id] = location.hash.slice(1).split('/').map(decodeURIComponent);
  await list();
  await open(name || agents[0]?.name, id || undefined);
});
