// The lists beside the conversation, and the requests that update them.
import { $, element, keepFocus, keyed, setText } from './dom.js';
import { get } from './api.js';
import { visible } from './exact.js';
import { about } from './transcript.js';

const pace = 3000; // between two polls while the page is visible
const hurry = 1000; // between two polls after an event
const slowest = 30000; // while the server is unreachable

// Lists polls the server every few seconds.
export class Lists {
  // open opens a conversation; news is called with the open conversation's entry; away if the server is unreachable.
  constructor({ open, news, away }) {
    Object.assign(this, { open, news, away });
    this.sessions = [];
    this.waiting = [];
    this.wait = pace;
    this.looks = 0;
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) this.look();
    });
  }

  // show sets the open conversation.
  show(agents, agent, id, listed) {
    Object.assign(this, { agents, agent, id, listed });
    this.draw();
  }

  // look polls soon, and then every few seconds. It sends one request of each kind at a time, and at most one per second.
  look() {
    this.looks++;
    this.next(Math.max(0, (this.last ?? 0) + hurry - performance.now()));
  }

  next(wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      if (document.hidden) return; // it polls again when it becomes visible
      const timer = this.timer;
      await this.reading;
      if (timer !== this.timer) return; // another poll is scheduled
      this.last = performance.now();
      await (this.reading = this.read());
      if (timer === this.timer) this.next(this.wait);
    }, wait);
  }

  async read() {
    const { id, looks } = this;
    let sessions, waiting, current;
    try {
      [sessions, waiting] = await Promise.all([get('sessions?roots=true&limit=30'), get('waiting?limit=20')]);
      current = sessions.items.find(session => session.sessionId === id);
      if (!current && this.listed) current = await get(`status?sessionId=${encodeURIComponent(id)}`).catch(missing);
    } catch (error) {
      this.wait = Math.min(this.wait * 2, slowest);
      this.away(error instanceof TypeError); // fetch reports an unreachable server as a TypeError
      return;
    }
    this.wait = pace;
    this.away(false);
    this.sessions = sessions.items;
    this.waiting = waiting.items;
    this.more = waiting.hasMore;
    this.draw();
    if (id !== this.id || looks !== this.looks) return; // something has happened since; the next poll tells
    this.listed = !!current; // the server knows it, and it may become too old for the list
    this.news(current, waiting.items.filter(call => call.rootSessionId === id).map(({ call }) => call.toolCallId));
  }

  draw() {
    keepFocus(() => {
      entries($('agents'), this.agents, agent => agent.name, agent => ({
        name: agent.name, detail: about(agent), title: agent.description ?? '', current: agent === this.agent, go: () => this.open(agent.name),
      }));
      entries($('waiting'), this.waiting, ({ call, sessionId }) => `${sessionId}/${call.toolCallId}`, ({ call, agentType, rootSessionId }) => ({
        name: summary(call), detail: `${agentType} · since ${when(call.createdAt)}`, mark: 'waiting',
        title: rootSessionId, go: () => this.open(undefined, rootSessionId),
      }));
      $('inbox').hidden = this.waiting.length === 0;
      setText($('count'), `${this.waiting.length}${this.more ? '+' : ''}`);
      entries($('sessions'), this.sessions, session => session.sessionId, session => ({
        name: visible(session.metadata?.title ?? session.agentType), title: session.sessionId, mark: session.activity,
        detail: [session.activity, session.metadata?.title && session.agentType, when(session.updatedAt)].filter(Boolean).join(' · '),
        current: session.sessionId === this.id, go: () => this.open(session.agentType, session.sessionId),
      }));
    });
  }
}

const longest = 100; // characters of a summary
const mostValues = 10;

// summary tells a call from others of its tool by the beginning of what it was made with. It looks no deeper, because a call may
// be as large and deep as the server accepts.
function summary({ toolName, input }) {
  const values = [];
  for (const name in input) {
    if (values.length === mostValues) break;
    const value = input[name];
    values.push(value === null || typeof value !== 'object' ? String(value).slice(0, longest) : '…');
  }
  return visible([toolName, values.join(', ').slice(0, longest)].filter(Boolean).join(': '));
}

function missing(error) {
  if (error.status === 404) return undefined;
  throw error;
}

function entries(list, items, key, describe) {
  keyed(list, items, key, make, (child, item) => {
    const { name, detail, title, mark = '', current = false, go } = describe(item);
    const entry = child.firstElementChild;
    entry.onclick = go;
    setText(entry.children[0], name);
    setText(entry.children[1], detail);
    for (const [attribute, value] of [['title', title], ['aria-current', String(current)], ['class', mark]]) {
      if (entry.getAttribute(attribute) !== value) entry.setAttribute(attribute, value);
    }
  });
}

function make() {
  return element('li', {}, element('button', { type: 'button' }, element('span', {}), element('small', {})));
}

function when(time) {
  const at = new Date(time);
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString([], { timeStyle: 'short' }) : at.toLocaleDateString([], { dateStyle: 'medium' });
}
