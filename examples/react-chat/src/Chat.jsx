import { useMemo, useState } from 'react';
import { useChat } from '@ai-sdk/react';
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from 'ai';

// The agent to talk to. Without one the server uses its first agent.
const agent = new URLSearchParams(location.search).get('agent') ?? undefined;

export function Chat({ id, initial }) {
  const [text, setText] = useState('');
  const transport = useMemo(() => new DefaultChatTransport({ api: '/chat', body: { agent }, headers: { 'x-helix-ai-sdk': '7' } }), []);
  const { messages, sendMessage, status, error, stop, addToolOutput, addToolApprovalResponse } = useChat({
    id,
    messages: initial,
    transport,
    resume: true, // after a reload, continue to read the reply in progress
    // Send the answers once every waiting call has one.
    sendAutomaticallyWhen: options =>
      lastAssistantMessageIsCompleteWithToolCalls(options) || lastAssistantMessageIsCompleteWithApprovalResponses(options),
  });
  const busy = status === 'submitted' || status === 'streaming';

  // Closing the connection does not stop a durable run, so ask the server to interrupt it.
  const halt = async () => {
    await fetch(`/chat/${encodeURIComponent(id)}/interrupt`, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}',
    });
    stop();
  };

  return (
    <main style={{ maxWidth: '42rem', margin: '2rem auto', fontFamily: 'system-ui' }}>
      {messages.map(message => (
        <section key={message.id} aria-label={message.role}>
          <strong>{message.role === 'user' ? 'You' : 'Agent'}</strong>
          {message.parts.map((part, i) => (
            <Part key={i} part={part} onOutput={addToolOutput} onApproval={addToolApprovalResponse} />
          ))}
        </section>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form
        onSubmit={event => {
          event.preventDefault();
          if (!text.trim() || busy) return;
          sendMessage({ text });
          setText('');
        }}
      >
        <input aria-label="Message" value={text} onChange={event => setText(event.target.value)} />
        {busy ? <button type="button" onClick={halt}>Stop</button> : <button>Send</button>}
      </form>
    </main>
  );
}

function Part({ part, onOutput, onApproval }) {
  switch (part.type) {
    case 'text':
      return <p style={{ whiteSpace: 'pre-wrap' }}>{part.text}</p>;
    case 'reasoning':
      return <p style={{ opacity: 0.6 }}>{part.text}</p>;
    case 'dynamic-tool':
      return <Tool part={part} onOutput={onOutput} onApproval={onApproval} />;
    case 'data-output':
      return <pre>{JSON.stringify(part.data, null, 2)}</pre>;
    default:
      return null; // steps, activity of other agents, changes of state
  }
}

function Tool({ part, onOutput, onApproval }) {
  return (
    <fieldset data-call={part.toolCallId}>
      <legend>{part.toolName}: {part.state}</legend>
      <code>{JSON.stringify(part.input)}</code>
      {part.state === 'approval-requested' && (
        <>
          <button onClick={() => onApproval({ id: part.approval.id, approved: true })}>Approve</button>
          <button onClick={() => onApproval({ id: part.approval.id, approved: false })}>Deny</button>
        </>
      )}
      {part.toolName === 'choose' && part.state === 'input-available' && part.input.options.map(option => (
        <button key={option} onClick={() => onOutput({ tool: part.toolName, toolCallId: part.toolCallId, output: option })}>{option}</button>
      ))}
      {part.state === 'output-available' && <pre>{JSON.stringify(part.output)}</pre>}
      {part.errorText && <p role="alert">{part.errorText}</p>}
    </fieldset>
  );
}
