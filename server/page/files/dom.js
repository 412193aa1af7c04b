// Functions of the page's modules to create and change elements.

export const $ = id => document.getElementById(id);

export function element(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter(child => child != null));
  return node;
}

// button returns a button. onclick must handle its own errors.
export function button(label, onclick, className = '') {
  return element('button', { type: 'button', className, onclick }, label);
}

// setText changes a node only if its text differs, to avoid needless announcements and layouts.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// keepFocus makes a change after which the focus is where it was. If its element is gone or hidden, the focus moves to
// the button of the same name beside it, to the next thing that can be answered, or to the input field.
export function keepFocus(change) {
  const focused = document.activeElement;
  const label = focused?.textContent;
  const scope = focused?.closest?.('[data-key]')?.dataset.key;
  change();
  if (!focused || focused === document.body || focused.checkVisibility()) return;
  const beside = scope && document.querySelector(`[data-key="${CSS.escape(scope)}"]`);
  const same = beside && [...beside.querySelectorAll('button')].find(other => other.textContent === label && other.checkVisibility());
  (same ?? nextAnswer() ?? $('text')).focus();
}

// nextAnswer returns the first control of the first call that waits for the person.
export function nextAnswer() {
  return document.querySelector('#messages .card.waiting :is(input, select, textarea, button)');
}

// keyed shows items as children of a node: one child each, by key, in order. Existing children are updated
// in place, so that the focus stays.
export function keyed(into, items, key, make, update) {
  const known = new Map([...into.children].map(child => [child.dataset.key, child]));
  let at = into.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    update(child, item);
    if (child === at) at = at.nextElementSibling;
    else into.insertBefore(child, at);
  }
  for (const gone of known.values()) gone.remove();
}
