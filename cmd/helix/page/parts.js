// How the parts of a message are shown.
import { button, element } from './dom.js';
import { visible } from './exact.js';

// Part shows one part of a message and updates the display with as few changes as possible.
export class Part {
  // desk answers waiting calls: see showApproval and question.
  constructor(part, waits, desk) {
    this.type = part.type;
    this.update(part, waits, desk);
  }

  // fits reports whether a part can replace the one on display.
  fits(part) {
    return this.type === part.type && this.call === part.toolCallId;
  }

  update(part, waits, desk) {
    this.call = part.toolCallId;
    this.part = part; // the part that its buttons answer
    if (part.type === 'text' && this.node) {
      this.write(part.text);
      return;
    }
    const approval = waits && part.state === 'approval-requested' ? desk.approvals.get(part.toolCallId) : undefined;
    // Parts change by setting their fields, so a part with the same fields needs no update.
    const fields = [
      part.state, part.text, part.toolName, part.input, part.output, part.errorText, part.approval, part.data, part.url, waits,
      approval?.whole, approval?.problem,
    ];
    if (this.fields?.every((field, i) => field === fields[i])) return;
    this.fields = fields;
    const content = JSON.stringify([part, waits]);
    if (this.node !== undefined && content === this.content && approval?.whole === this.whole && approval?.problem === this.problem) return;
    Object.assign(this, { content, whole: approval?.whole, problem: approval?.problem });
    const node = show(part, waits, desk, () => this.part);
    if (node && part.toolCallId) node.dataset.key = part.toolCallId;
    if (this.type === 'reasoning' && this.node?.open) node.open = true;
    this.node?.replaceWith(node);
    this.node = node;
    this.text = part.type === 'text' ? shorten(part.text) : undefined;
  }

  // write extends or replaces a text.
  write(whole) {
    const text = shorten(whole);
    if (text === this.text) return;
    if (this.node.firstChild && text.startsWith(this.text)) this.node.firstChild.appendData(text.slice(this.text.length));
    else this.node.textContent = text;
    this.text = text;
  }
}

const longest = 200_000; // characters of a text; a browser takes many seconds to lay out millions of them

function shorten(text) {
  if (text.length <= longest) return text;
  return `${text.slice(0, longest)}\n… and ${(text.length - longest).toLocaleString()} more characters`;
}

function show(part, waits, desk, current) {
  switch (part.type) {
    case 'text':
      return element('div', { className: 'text' }, shorten(part.text));
    case 'reasoning':
      return element('details', { className: 'reasoning' }, element('summary', {}, 'Thoughts'), element('div', { className: 'text' }, part.text));
    case 'file':
      return showFile(part);
    case 'dynamic-tool':
      return showTool(part, waits, desk, current);
    case 'data-output':
      return card('output', '', part.data);
    case 'data-subagent':
      return showSubAgent(part.data);
    default:
      return null;
  }
}

// showFile shows a picture that came with the message. One on another server is a link: loading it would reveal
// to that server who reads the conversation, and when.
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

// Calls of agents are tools with a prefix in their names.
const prefix = /^(subagent|companion)__/;

function showTool(part, waits, desk, current) {
  // The result of a call whose agent waits is its status.
  const below = prefix.test(part.toolName) && part.output?.status === 'waiting';
  const state = waits ? 'waits for you' : below ? 'waits' : states[part.state] ?? part.state;
  const title = visible(part.toolName.replace(prefix, ''));
  if (waits && part.state === 'approval-requested') return showApproval(card(title, state), part, desk, current);
  const asked = waits && Array.isArray(part.input?.options) ? part.input.question : undefined;
  const shown = card(title, state, asked ?? part.input);
  if (part.state === 'output-error' || part.state === 'output-denied') shown.classList.add('failed');
  if (part.output !== undefined && !below) shown.append(value(part.output));
  if (part.errorText) shown.append(element('div', { className: 'error' }, part.errorText));
  if (waits) question(shown, part, desk, current);
  return shown;
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

// question lets the user answer a client tool: with one of its options or, if it has none, with free text.
function question(shown, part, desk, current) {
  shown.classList.add('waiting');
  if (Array.isArray(part.input?.options)) {
    actions(shown, ...part.input.options.map(option => button(String(option), () => desk.result(current(), option))));
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
