// The calls of a conversation that wait for approval, as the server has them: what is shown of them is what is judged.
import { element } from './dom.js';
import { getText } from './api.js';
import { draw, read } from './exact.js';

export class Approvals {
  // changed is called when a call can be shown; stale if one does not wait any more.
  constructor(sessionId, { changed, stale }) {
    Object.assign(this, { sessionId, changed, stale });
    this.calls = new Map();
  }

  get(id) {
    return this.calls.get(id) ?? this.lookUp(id);
  }

  // lookUp asks the server what a call is: numbers that JavaScript would round are shown as they are.
  lookUp(id) {
    const call = {};
    this.calls.set(id, call);
    getText(`/status?sessionId=${encodeURIComponent(this.sessionId)}`).then(text => {
      const found = read(text).get('pending').items.find(call => call.get('toolCallId').value === id);
      if (!found) {
        this.stale();
        throw new Error('it is not waiting any more');
      }
      const whole = element('pre', { className: 'whole' });
      draw(found.get('input'), whole, '\n');
      call.whole = whole;
    }).catch(error => {
      call.problem = `The call cannot be shown: ${error.message}`;
    }).then(() => this.changed(call));
    return call;
  }

  // withSeen adds to an approval what was drawn, to the letter: the server refuses it if the call is another.
  withSeen(address, request) {
    if (!address.endsWith('/submit-tool-result') || !request.body) return request;
    const answer = JSON.parse(request.body);
    const { tool, whole } = this.calls.get(answer.toolCallId) ?? {};
    if (!answer.approval?.approved || !whole) return request;
    const seen = `{"toolName":${JSON.stringify(tool)},"input":${whole.textContent}}`;
    return { ...request, body: `${request.body.slice(0, -1)},"seen":${seen}}` };
  }
}
