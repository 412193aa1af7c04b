// How the parts of a message are shown.
import { button, element, setText } from './dom.js';
import { visible } from './exact.js';
import { longest, Markdown } from './markdown.js';
import { lines, showQuestion } from './questions.js';

// Part shows one part of a message and updates the display with as few changes as possible.
export class Part {
  // role is of whom the message is: what a person typed is shown as it was typed, and not as markdown. desk answers
  // waiting calls: see showApproval and question.
  constructor(part, role, waits, desk) {
    this.type = part.type;
    this.typed = role === 'user';
    this.update(part, waits, desk);
  }

  // fits reports whether a part can replace the one on display.
  fits(part) {
    return this.type === part.type && this.call === part.toolCallId;
  }

  update(part, waits, desk) {
    this.call = part.toolCallId;
    this.part = part; // the part that its buttons answer
    if (Object.hasOwn(writings, part.type) && !(this.typed && part.type === 'text')) {
      this.write(part);
      return;
    }
    const asks = waits ? desk.question(part) : undefined;
    const whole = wholeOf(part, desk);
    const approval = waits && !asks && part.state === 'approval-requested' ? desk.approvals.get(part.toolCallId) : undefined;
    // Parts change by setting their fields, so a part with the same fields needs no update.
    const fields = [
      part.state, part.text, part.toolName, part.input, part.output, part.errorText, part.approval, part.data, part.url, waits,
      approval?.whole, approval?.problem, asks?.questionId, whole,
    ];
    if (this.fields?.every((field, i) => field === fields[i])) return;
    this.fields = fields;
    const content = part.type === 'file' ? undefined : JSON.stringify([part, waits, asks, whole]); // a file is large, and in the fields
    if (content && this.node !== undefined && content === this.content && approval?.whole === this.whole && approval?.problem === this.problem) return;
    Object.assign(this, { content, whole: approval?.whole, problem: approval?.problem });
    // The card of a question stays as long as it waits, with what was typed.
    const node = asks && this.question?.id === asks.questionId ? this.question.node : show(part, waits, desk, () => this.part);
    if (asks) this.question = { id: asks.questionId, node };
    if (node && part.toolCallId) node.dataset.key = part.toolCallId;
    this.node?.replaceWith(node);
    this.node = node;
  }

  // write extends or replaces a text of a model, in the element that shows it already.
  write(part) {
    if (!this.node) {
      const text = element('div', { className: 'text markdown' });
      this.markdown = new Markdown(text);
      Object.assign(this, writings[part.type](text));
    }
    if (part.type === 'data-subagent') setText(this.head, headOf(part.data));
    this.markdown.write((part.type === 'data-subagent' ? part.data.text : part.text) ?? '');
  }
}

// How the texts of models are shown.
const writings = {
  text: text => ({ node: text }),
  reasoning: text => ({ node: element('details', { className: 'reasoning' }, element('summary', {}, 'Thoughts'), text) }),
  'data-subagent': text => {
    const head = element('small');
    return { head, node: element('div', { className: 'nested' }, head, text) };
  },
};

function shorten(text) {
  if (text.length <= longest) return text;
  return `${text.slice(0, longest)}\n… and ${(text.length - longest).toLocaleString()} more characters`;
}

function show(part, waits, desk, current) {
  switch (part.type) {
    case 'text':
      return element('div', { className: 'text' }, shorten(part.text));
    case 'file':
      return showFile(part);
    case 'dynamic-tool':
      return showTool(part, waits, desk, current);
    case 'data-output':
      return card('output', '', part.data);
    case 'data-skill_loaded':
      return element('div', { className: 'divider', role: 'separator' }, `loaded skill ${visible(String(part.data?.name))}`);
    case 'data-compacted':
      return showDivider(part.data ?? {});
    default:
      return null;
  }
}

// What a divider says: the model is sent the conversation before it only in a shorter form, or not at all.
const divides = {
  summary: ['summarised for the model', 'The model is sent a summary of what is above'],
  trim: ['shortened for the model', 'The model is sent large inputs and results of tools above cut'],
  clear: ['cleared for the model', 'The model is sent nothing of what is above'],
};

function showDivider({ kind, kept, tokensBefore, tokensAfter }) {
  const [what, long] = divides[kind] ?? ['compacted for the model', 'The model is sent what is above in a shorter form'];
  const sizes = [tokensBefore, tokensAfter].filter(size => size > 0).map(size => size.toLocaleString());
  const text = sizes.length > 0 ? `${what} · ${sizes.join(' → ')} tokens` : what;
  const except = kept > 0 ? `, but for the last ${kept === 1 ? 'message' : `${kept.toLocaleString()} messages`} before it` : '';
  return element('div', { className: 'divider', role: 'separator', ariaLabel: text, title: `${long}${except}. You still see all of it.` }, text);
}

// showFile shows a picture that came with the message. One on another server is a link: loading it would reveal
// to that server who reads the conversation, and when.
function showFile({ url, mediaType, filename }) {
  if (/^data:/i.test(url)) {
    const link = () => element('a', { href: url, download: visible(filename ?? '') }, visible(filename || 'a file'));
    if (!mediaType?.startsWith('image/')) return link();
    const picture = element('img', { src: url, alt: visible(filename || 'an image') });
    picture.onerror = () => picture.replaceWith(link()); // the browser cannot show this kind
    return element('div', {}, picture);
  }
  const name = visible(filename ? `${filename} (${url})` : url);
  return /^https?:/i.test(url) ? element('a', { href: url, target: '_blank', rel: 'noopener noreferrer' }, name) : element('span', {}, name);
}

const states = {
  'input-streaming': 'being written', 'input-available': 'running', 'approval-requested': 'waits for approval',
  'approval-responded': 'answered', 'output-available': 'done', 'output-error': 'failed', 'output-denied': 'not approved',
};

// Calls of agents are tools with a prefix in their names.
const prefix = /^(subagent|companion)__/;

function showTool(part, waits, desk, current) {
  // The result of a call whose agent waits is its status.
  const below = prefix.test(part.toolName) && part.output?.status === 'waiting';
  const state = waits ? 'waits for you' : below ? 'waits' : states[part.state] ?? part.state;
  const title = visible(part.toolName.replace(prefix, ''));
  const asks = waits ? desk.question(part) : undefined;
  if (asks) {
    return showQuestion(card(title, state), asks, desk.agent(), {
      reply: answer => desk.reply(current(), answer), decline: () => desk.decline(current()),
    });
  }
  if (waits && part.state === 'approval-requested') return showApproval(card(title, state), part, desk, current);
  const asked = waits && Array.isArray(part.input?.options) ? part.input.question : undefined;
  const shown = card(title, state, asked === undefined ? part.input : lines(asked));
  if (part.state === 'output-error' || part.state === 'output-denied') shown.classList.add('failed');
  if (part.output !== undefined && !below) shown.append(loads.test(part.toolName) ? folded(part.output) : value(part.output));
  const whole = wholeOf(part, desk);
  if (whole) offer(shown, part, whole, desk);
  if (part.errorText) shown.append(element('div', { className: 'error' }, part.errorText));
  if (waits) question(shown, part, desk, current);
  return shown;
}

// The results of these tools are instructions for the model, which people need not read.
const loads = /^(load_skill|read_skill_file)$/;

function folded(of) {
  return element('details', {}, element('summary', {}, 'what the model read'), value(of));
}

// showApproval shows a call that the user decides on with its whole input, and then lets them decide.
function showApproval(shown, part, desk, current) {
  shown.classList.add('waiting');
  const call = desk.approvals.get(part.toolCallId);
  if (call.problem) {
    shown.append(element('div', { className: 'error' }, call.problem));
    actions(shown, button('Try again', () => desk.lookUp(current())));
  } else if (!call.whole) {
    shown.append(element('div', { className: 'state' }, 'Loading the call …'));
  } else {
    call.tool = part.toolName;
    shown.append(call.whole);
    actions(shown, button('Approve', () => desk.approve(current()), 'main'), button('Deny', () => desk.deny(current())));
  }
  return shown;
}

// headOf says what a sub-agent is doing.
function headOf({ agent, status, tools }) {
  const shown = (tools ?? []).map(tool => `${visible(tool.toolName)} (${tool.state})`).join(', ');
  return `${visible(agent)} · ${status}${shown && ` · ${shown}`}`;
}

const blob = /^sha256:[0-9a-f]{64}$/;
const mostBlobs = 64;

// wholeOf returns where the whole of a large result is, of which the conversation has only the beginning and the end.
function wholeOf(part, desk) {
  if (part.type !== 'dynamic-tool' || part.state !== 'output-available') return undefined;
  const whole = desk.whole(part);
  return Array.isArray(whole?.blobs) && whole.blobs.length <= mostBlobs && whole.blobs.every(ref => blob.test(ref)) ? whole : undefined;
}

// offer lets the user download the whole of a large result.
function offer(shown, { toolName }, whole, desk) {
  actions(shown, button(`Download the whole result (${Number(whole.bytes).toLocaleString()} bytes)`, () => desk.download(toolName, whole)));
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

// question lets the user answer a client tool: with one of its options or, if it has none, with free text.
function question(shown, part, desk, current) {
  shown.classList.add('waiting');
  if (Array.isArray(part.input?.options)) {
    actions(shown, ...part.input.options.map(option => button(visible(String(option)), () => desk.result(current(), option))));
    return;
  }
  const field = element('input', { placeholder: 'your answer', ariaLabel: 'your answer' });
  const answer = () => desk.result(current(), typed(field.value));
  field.addEventListener('keydown', event => {
    if (event.key === 'Enter' && !event.isComposing) answer();
  });
  actions(shown, field, button('Answer', answer, 'main'));
}

function actions(shown, ...all) {
  shown.append(element('div', { className: 'actions' }, ...all));
}

// typed parses JSON, and returns anything else as text.
function typed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
