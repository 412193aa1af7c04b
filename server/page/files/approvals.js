// The calls of a conversation that wait for approval, as the server has them: people approve exactly what is shown.
import { element } from './dom.js';
import { getText } from './api.js';
import { draw, read } from './exact.js';

export class Approvals {
  // changed is called when a call can be shown; stale if one no longer waits.
  constructor(sessionId, { changed, stale }) {
    Object.assign(this, { sessionId, changed, stale });
    this.calls = new Map();
  }

  get(id) {
    return this.calls.get(id) ?? this.lookUp(id);
  }

  // lookUp loads a call from the server, so that numbers are shown exactly and not rounded by JavaScript.
  lookUp(id) {
    const call = {};
    this.calls.set(id, call);
    getText(`status?sessionId=${encodeURIComponent(this.sessionId)}`).then(text => {
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

  // withSeen adds the exact call that was shown to an approval: the server refuses it if the call differs.
  withSeen(address, request) {
    if (!address.endsWith('/submit-tool-result') || !request.body) return request;
    const answer = JSON.parse(request.body);
    const { tool, whole } = this.calls.get(answer.toolCallId) ?? {};
    if (!answer.approval?.approved || !whole) return request;
    const seen = `{"toolName":${JSON.stringify(tool)},"input":${whole.textContent}}`;
    return { ...request, body: `${request.body.slice(0, -1)},"seen":${seen}}` };
  }
}
