import { defineConfig } from 'vite';

// The proxy gives page and server one origin, so the server needs no server.cors.
const helix = process.env.HELIX_URL ?? 'http://127.0.0.1:4170';

export default defineConfig({
  esbuild: { jsx: 'automatic' },
  server: { proxy: { '/chat': helix } },
});
