// How the chunks of the chat wire become messages.

// chatStream yields the chunks of a reply's body.
export async function* chatStream(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      let end;
      while ((end = text.indexOf('\n\n')) >= 0) {
        const data = text.slice(0, end).split('\n').filter(line => line.startsWith('data: ')).map(line => line.slice(6)).join('\n');
        text = text.slice(end + 2);
        if (data && data !== '[DONE]') yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// applyChunk changes the messages by a chunk. A reply that is repeated, after a reload, begins anew; one that goes on, after
// an answer, goes on in its message.
export function applyChunk(messages, chunk) {
  if (chunk.type === 'start') {
    let message = messages.find(m => m.id === chunk.messageId);
    if (!message) {
      message = { id: chunk.messageId, role: 'assistant', parts: [] };
      messages.push(message);
    } else {
      message.parts = [];
    }
    return;
  }
  const message = messages.at(-1);
  if (message?.role !== 'assistant') return;
  const part = (type, id) => message.parts.findLast(p => p.type === type && p.id === id);
  const tool = () => message.parts.find(p => p.toolCallId === chunk.toolCallId) ?? {};
  switch (chunk.type) {
    case 'text-start':
    case 'reasoning-start':
      message.parts.push({ type: chunk.type.split('-')[0], id: chunk.id, text: '' });
      break;
    case 'text-delta':
    case 'reasoning-delta': {
      const open = part(chunk.type.split('-')[0], chunk.id);
      if (open) open.text += chunk.delta;
      break;
    }
    case 'file':
      message.parts.push(chunk);
      break;
    case 'tool-input-start':
      message.parts.push({ type: 'dynamic-tool', toolCallId: chunk.toolCallId, toolName: chunk.toolName, state: 'input-streaming' });
      break;
    case 'tool-input-available': {
      const known = message.parts.find(p => p.toolCallId === chunk.toolCallId);
      const now = { type: 'dynamic-tool', toolCallId: chunk.toolCallId, toolName: chunk.toolName, state: 'input-available', input: chunk.input };
      if (known) Object.assign(known, now);
      else message.parts.push(now);
      break;
    }
    case 'tool-input-error':
    case 'tool-output-error':
      Object.assign(tool(), { state: 'output-error', errorText: chunk.errorText });
      break;
    case 'tool-approval-request':
      Object.assign(tool(), { state: 'approval-requested', approval: { id: chunk.approvalId } });
      break;
    case 'tool-output-available':
      Object.assign(tool(), { state: 'output-available', output: chunk.output });
      break;
    case 'tool-output-denied':
      Object.assign(tool(), { state: 'output-denied' });
      break;
    case 'data-subagent-text': {
      const child = part('data-subagent', chunk.data.sessionId);
      if (child) child.data.text = (child.data.text ?? '') + chunk.data.delta;
      break;
    }
    case 'data-dropped':
      message.parts = message.parts.filter(p => !chunk.data.ids?.includes(p.id ?? p.toolCallId));
      break;
    default:
      if (chunk.type.startsWith('data-') && !chunk.transient) {
        const known = chunk.id && part(chunk.type, chunk.id);
        if (known) known.data = chunk.data;
        else message.parts.push({ type: chunk.type, id: chunk.id, data: chunk.data });
      }
  }
}
