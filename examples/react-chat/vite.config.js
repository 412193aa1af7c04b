import { defineConfig } from 'vite';

// The page and the server appear as one origin, so the server need not allow another (server.cors).
const helix = process.env.HELIX_URL ?? 'http://127.0.0.1:4170';

export default defineConfig({
  esbuild: { jsx: 'automatic' },
  server: { proxy: { '/chat': helix } },
});
