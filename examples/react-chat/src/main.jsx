import { StrictMode, useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { Chat } from './Chat.jsx';

// The address contains the session's id, so a reload continues the same conversation.
const id = location.hash.slice(1) || crypto.randomUUID();
location.hash = id;

// The server returns the history. The reply in progress follows over the stream.
async function history() {
  const response = await fetch(`/chat/${encodeURIComponent(id)}/messages`, { headers: { 'x-helix-ai-sdk': '7' } });
  if (response.status === 404) return []; // a new conversation
  if (!response.ok) throw new Error(`the history could not be loaded (${response.status})`);
  return (await response.json()).messages;
}

function App() {
  const [messages, setMessages] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    history().then(setMessages, setError);
  }, []);
  if (error) return <p role="alert">{error.message}</p>;
  if (!messages) return <p>Loading…</p>;
  return <Chat id={id} initial={messages} />;
}

createRoot(document.getElementById('root')).render(<StrictMode><App /></StrictMode>);
