-- The append that runs most: its producer was here before, continues its own numbering, and the stream is open. It does what
-- act.append in stream_write.lua does, which follows and does everything else, but defines no functions and needs no prelude. The last
-- argument names the process: its own readers get the batch without being told by the server, so it also answers which stream
-- has it.

if ARGV[3] == 'append' then
  local call, A = redis.call, ARGV
  local n, run, progress = tonumber(A[10]), A[7], 'p' .. A[5]
  local got = call('HMGET', KEYS[1], 'status', 'last', 'bytes', 'run', progress, 'gen')
  local entered = run == '' or got[4] == run or (A[8] ~= '1' and got[4] and got[4] ~= '')
  if n > 0 and got[1] == 'active' and got[5] == A[6] .. ' ' .. A[9] and entered then
    local now = A[2]
    if now == '' then
      local t = call('TIME')
      now = t[1] .. string.sub('00000' .. t[2], -6)
    end
    local first, last, bytes, at = tonumber(A[9]), tonumber(got[2]), tonumber(got[3] or '0'), 11
    for i = 0, n - 1 do
      local time, pieces = A[at], tonumber(A[at + 1])
      if time == '*' then time = now end
      for piece = 1, pieces do
        local body = A[at + 1 + piece]
        last, bytes = last + 1, bytes + #body
        call('XADD', KEYS[2], string.format('%.0f-0', last), 'p', A[5], 'e', A[6], 'n', string.format('%.0f', first + i), 't', time, 'c', body)
      end
      at = at + 2 + pieces
    end
    last = string.format('%.0f', last)
    call('HSET', KEYS[1], 'last', last, 'bytes', string.format('%.0f', bytes), 'updated', now, progress, A[6] .. string.format(' %.0f', first + n))
    redis.pcall('PUBLISH', A[4], A[#A]) -- whoever may not be told looks by himself
    return { 'ok', last, got[6] }
  end
end
