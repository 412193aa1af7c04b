// The conversation: its messages, and below them its status and suggested messages.
import { $, button, element, keepFocus, keyed, setText } from './dom.js';
import { Part } from './parts.js';

export class Transcript {
  // desk has the actions of the buttons.
  constructor(desk) {
    this.desk = desk;
    this.shown = new Map(); // the parts of each message, by its id
    this.view = $('transcript');
    this.atEnd = true;
    this.top = 0; // where it was scrolled to
    this.view.addEventListener('scroll', () => {
      const { scrollTop, scrollHeight, clientHeight } = this.view;
      // Only who scrolls up leaves the end: what has come since the page went there may have moved it away.
      if (scrollHeight - scrollTop - clientHeight < 40) this.atEnd = true;
      else if (scrollTop < this.top) this.atEnd = false;
      this.top = scrollTop;
      this.pointDown();
    }, { passive: true });
    $('down').addEventListener('click', () => this.goDown());
  }

  clear() {
    this.shown.clear();
    $('messages').replaceChildren();
    this.ending = undefined;
    this.atEnd = true;
    this.seen = undefined;
  }

  // goToEnd brings the end into view, and keeps it there.
  goToEnd() {
    this.atEnd = true;
    this.follow();
  }

  // goDown brings into view what waits for the person, or else the end.
  goDown() {
    const waits = document.querySelector('#messages .card.waiting');
    if (waits && waits.offsetHeight > this.view.clientHeight) this.reveal(waits);
    else this.goToEnd();
    waits?.querySelector('input, select, textarea, button')?.focus({ preventScroll: true });
  }

  // pointDown says what is below, if the end is out of view: something that waits for the person, or what came since.
  pointDown(state = this.state) {
    this.state = state;
    const height = this.view.scrollHeight;
    if (this.atEnd) this.seen = height;
    const waits = !this.atEnd && state === 'waiting' && this.waitsBelow();
    const more = !this.atEnd && this.seen !== undefined && height > this.seen;
    $('down').className = waits ? 'waits' : '';
    if (waits || more) setText($('down'), waits ? 'Waits for you ↓' : 'More below ↓');
    $('down').hidden = !waits && !more;
  }

  waitsBelow() {
    const card = document.querySelector('#messages .card.waiting');
    return !!card && card.getBoundingClientRect().bottom > this.view.getBoundingClientRect().bottom;
  }

  // draw shows a conversation. If only one message has changed, it updates only that one.
  draw(chat, agent, state, changed) {
    keepFocus(() => {
      const waiting = new Set(chat.waiting().map(part => part.toolCallId));
      const node = changed && this.nodeOf(changed);
      if (node) {
        this.update(node, changed, waiting);
      } else {
        keyed($('messages'), chat.messages, message => message.id,
          message => element('div', { className: `message ${message.role}` }), (child, message) => this.update(child, message, waiting));
        this.forget(chat.messages);
      }
      $('earlier').hidden = !(chat.earlier > 0);
      setText($('earlier'), chat.earlier > 0 ? `${chat.earlier.toLocaleString()} earlier messages are stored, and too large to be shown here.` : '');
      this.end(chat, agent, state);
    });
    this.follow();
    this.pointDown(state);
  }

  nodeOf(message) {
    const last = $('messages').lastElementChild;
    return last?.dataset.key === message.id ? last : undefined;
  }

  forget(messages) {
    if (this.shown.size <= messages.length) return;
    const known = new Set(messages.map(message => message.id));
    for (const id of this.shown.keys()) if (!known.has(id)) this.shown.delete(id);
  }

  update(node, message, waiting) {
    let parts = this.shown.get(message.id);
    if (!parts) this.shown.set(message.id, (parts = []));
    if (node.classList.contains('pending') !== !!message.pending) node.classList.toggle('pending', !!message.pending);
    message.parts.forEach((part, i) => {
      const waits = waiting.has(part.toolCallId);
      if (parts[i]?.fits(part)) {
        parts[i].update(part, waits, this.desk);
        return;
      }
      const fresh = new Part(part, message.role, waits, this.desk);
      parts[i]?.node?.remove();
      parts[i] = fresh;
      if (fresh.node) node.insertBefore(fresh.node, parts.slice(i + 1).find(later => later.node)?.node ?? null);
    });
    for (const gone of parts.splice(message.parts.length)) gone.node?.remove();
  }

  // end shows what follows the messages.
  end(chat, agent, state) {
    const offers = state === 'idle' && !agent.missing ? unused(agent, chat) : [];
    const compacts = state === 'streaming' && !!chat.compacting;
    const attempt = state === 'streaming' ? chat.retrying?.attempt : undefined;
    const ending = JSON.stringify([agent.name, state, compacts, attempt, chat.failure, offers, chat.messages.length === 0]);
    if (ending === this.ending) return;
    this.ending = ending;
    const all = [];
    if (agent.missing) all.push(element('p', { className: 'about' }, `This server does not have the agent ${agent.name}, so the conversation cannot go on here.`));
    else if (chat.messages.length === 0) all.push(element('p', { className: 'about' }, about(agent)));
    if (state === 'streaming') all.push(element('p', { className: 'working' }, compacts ? `${compactingNotice} …` : attempt ? `The model failed. Asking it again, attempt ${attempt} …` : 'Working …'));
    if (state === 'sending') all.push(element('p', { className: 'working' }, 'Sending …'));
    if (state === 'stopped') {
      all.push(standing('stopped', element('strong', {}, 'Stopped.'), ' What was said so far stays.', agent.missing ? null : button('Resume', this.desk.resume)));
    }
    if (state === 'failed') {
      const { error, detail } = chat.failure;
      all.push(standing('failed', element('strong', {}, error), detail && element('pre', {}, detail), agent.missing ? null : button('Retry', this.desk.retry)));
    }
    if (offers.length > 0) {
      all.push(element('div', { className: 'offers' }, ...offers.map(words => button(words, () => this.desk.say(words)))));
    }
    $('after').className = chat.messages.length === 0 ? 'empty' : '';
    $('after').replaceChildren(...all);
  }

  // follow keeps the end in view if it was visible.
  follow() {
    if (!this.atEnd || this.following) return;
    this.following = requestAnimationFrame(() => {
      this.following = undefined;
      if (this.atEnd) this.view.scrollTop = this.view.scrollHeight;
      this.pointDown();
    });
  }

  // reveal scrolls a call that is longer than the page to its beginning.
  reveal(node) {
    if (!(node?.offsetHeight > this.view.clientHeight)) return;
    this.atEnd = false;
    node.scrollIntoView();
  }
}

// compactingNotice is shown while the model is asked for a summary.
export const compactingNotice = 'Summarising the conversation for the model, which may take a minute';

function standing(className, ...children) {
  const node = element('div', { className: `standing ${className}` }, ...children.filter(child => child));
  node.dataset.key = className;
  return node;
}

// A description may end with suggested messages: Say "…" or "…".
export function about(agent) {
  return (agent.description ?? '').split(/(?:^| )Say (?=")/)[0];
}

// unused returns the suggested messages that were not sent yet.
function unused(agent, chat) {
  const [, rest = ''] = (agent.description ?? '').split(/(?:^| )Say (?=")/);
  const said = new Set(chat.messages.filter(message => message.role === 'user').flatMap(message => message.parts.map(part => part.text)));
  return [...rest.matchAll(/"([^"]+)"/g)].map(([, words]) => words).filter(words => !said.has(words));
}
