// Questions that a call asks in the middle: how they are shown and answered.
import { button, element } from './dom.js';
import { visible } from './exact.js';

const fewest = 8; // options that have a button each; more are a list
const fieldsInForm = 20; // an object with more is answered as JSON

// showQuestion adds a question to the card of its call, with what is needed to answer it: a button for each answer if
// they are few, an address to visit, a form, or else a field for JSON.
export function showQuestion(card, asks, agent, { reply, decline }) {
  const schema = asks.schema ?? {};
  card.classList.add('waiting');
  card.append(element('div', { className: 'state' }, 'asked by ', name(asks.agent ?? agent), asks.agent ? ', which was called by ' : null, asks.agent ? name(agent) : null));
  card.append(element('div', { className: 'text' }, lines(asks.prompt)));
  const refuse = button('Decline', decline, 'quiet'); // unlike what may be an option of the same name
  const [only, ...others] = Object.entries(schema.type === 'object' ? schema.properties ?? {} : {});
  const options = optionsOf(schema);
  if (asks.url) {
    const link = linkTo(asks.url);
    card.append(link ?? element('div', { className: 'error' }, `This is no address of a web page: ${visible(asks.url)}`));
    card.append(actions(link && button('Done', () => reply(undefined), 'main'), refuse));
  } else if (schema.type === 'boolean') {
    card.append(actions(button('Yes', () => reply(true), 'main'), button('No', () => reply(false)), refuse));
  } else if (only?.[1]?.type === 'boolean' && others.length === 0) {
    const say = yes => () => reply(Object.fromEntries([[only[0], yes]]));
    card.append(about(only[0], only[1]), actions(button('Yes', say(true), 'main'), button('No', say(false)), refuse));
  } else if (options?.length <= fewest) {
    card.append(actions(...options.map(({ value, label }) => button(label, () => reply(value))), refuse));
  } else {
    card.append(form(schema, reply, refuse));
  }
  return card;
}

// lines makes a text visible, line by line.
export function lines(text) {
  return String(text ?? '').split('\n').map(visible).join('\n');
}

function name(text) {
  return element('bdi', {}, visible(String(text)));
}

function actions(...all) {
  return element('div', { className: 'actions' }, ...all);
}

// linkTo returns a link that tells where it leads, or null if the address is not one of a web page. It shows the address
// as the browser visits it: a host with letters that look like others is written in ASCII.
function linkTo(text) {
  let address;
  try {
    address = new URL(text);
  } catch {
    return null;
  }
  if (!/^https?:$/.test(address.protocol) || address.username || address.password) return null;
  return element('div', { className: 'address' },
    element('a', { href: address.href, target: '_blank', rel: 'noopener noreferrer' }, visible(address.href)),
    element('small', {}, 'opens ', element('strong', {}, address.host), ' in a new tab'));
}

// optionsOf returns the values that a schema lists, with their labels, or undefined.
function optionsOf(schema) {
  if (Array.isArray(schema?.enum) && schema.enum.length > 0) {
    const texts = schema.enum.every(value => typeof value === 'string' && value !== '');
    return schema.enum.map(value => ({ value, label: visible(texts ? value : JSON.stringify(value)) }));
  }
  const choices = schema?.oneOf;
  if (!Array.isArray(choices) || choices.length === 0 || !choices.every(choice => choice?.const !== undefined && typeof choice.title === 'string')) return undefined;
  return choices.map(choice => ({ value: choice.const, label: visible(choice.title) }));
}

// form returns the form of a schema. What does not fit one is answered as JSON.
function form(schema, reply, refuse) {
  const fields = fieldsOf(schema);
  const read = fields
    ? () => (schema.type === 'object' ? Object.fromEntries(fields.map(field => [field.name, field.read()]).filter(([, value]) => value !== undefined)) : fields[0].read())
    : undefined;
  const whole = element('textarea', { rows: 3, placeholder: 'your answer, as JSON', ariaLabel: 'your answer, as JSON', required: true });
  const node = element('form', { className: 'question' },
    ...(fields ? fields.map(field => field.node) : [element('pre', {}, lines(JSON.stringify(schema, null, 2))), whole]),
    actions(element('button', { type: 'submit', className: 'main' }, 'Answer'), refuse));
  node.addEventListener('submit', event => {
    event.preventDefault();
    reply(read ? read() : parsed(whole.value));
  });
  return node;
}

// fieldsOf returns the fields of a form, or undefined if the schema is not a simple value or an object of such.
function fieldsOf(schema) {
  if (schema.type !== 'object') return simple(schema) ? [field('your answer', schema, true, false)] : undefined;
  const entries = Object.entries(schema.properties ?? {});
  if (entries.length === 0 || entries.length > fieldsInForm || !entries.every(([, of]) => simple(of))) return undefined;
  return entries.map(([key, of]) => field(key, of, Array.isArray(schema.required) && schema.required.includes(key), true));
}

function simple(schema) {
  return optionsOf(schema) !== undefined || ['string', 'number', 'integer', 'boolean'].includes(schema?.type);
}

function field(key, schema, required, labelled) {
  const options = schema.type === 'boolean' ? [{ value: true, label: 'Yes' }, { value: false, label: 'No' }] : optionsOf(schema);
  const numeric = schema.type === 'number' || schema.type === 'integer';
  const control = options
    ? element('select', { required }, element('option', { value: '' }, '…'), ...options.map(({ label }, i) => element('option', { value: String(i) }, label)))
    : element('input', { required, inputMode: numeric ? 'decimal' : 'text', placeholder: labelled ? '' : 'your answer' });
  control.ariaLabel = titleOf(key, schema);
  return {
    name: key,
    node: labelled ? element('label', {}, about(key, schema, required), control) : control,
    // An empty field is left out.
    read: () => {
      if (control.value === '') return undefined;
      if (options) return options[control.value].value;
      return numeric ? parsed(control.value) : control.value;
    },
  };
}

function titleOf(key, { title }) {
  return visible(typeof title === 'string' && title !== '' ? title : key);
}

// about is what a schema says about a field.
function about(key, schema, required = true) {
  return element('span', {}, titleOf(key, schema), required ? null : element('small', {}, ' (optional)'),
    schema.description ? element('small', { className: 'about' }, lines(schema.description)) : null);
}

// parsed returns the value of JSON. Anything else, and a number that would be rounded, stays a text: the server says
// what it expects.
function parsed(text) {
  try {
    const value = JSON.parse(text);
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? text : value;
  } catch {
    return text;
  }
}
