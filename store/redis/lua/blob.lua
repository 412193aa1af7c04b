-- Works on the bytes of one blob: K.P has its pieces, K.O the sessions that have or are about to have it, each with its state:
-- 'c' and a time while the session's own slot may not have the reference yet, 'k' and a time once it has. ARGV[3] says what to do.
-- Bytes that no session has for certain have a time to live.

local A = ARGV
local server = call('TIME') -- not the store's clock, which may be another
local time = tonumber(server[1]) * 1000000 + tonumber(server[2])

-- session, time to live in milliseconds, '1' if another session must have the blob: returns the state before, and how many
-- pieces there are
if A[3] == 'claim' then
  local left = call('PTTL', K.O)
  if left == -2 and A[6] == '1' then return { 'gone', 0 } end
  local state = call('HGET', K.O, A[4]) or ''
  if string.sub(state, 1, 1) ~= 'k' then call('HSET', K.O, A[4], 'c' .. whole(time)) end
  if left ~= -1 then
    call('PEXPIRE', K.O, A[5])
    call('PEXPIRE', K.P, A[5])
  end
  return { string.sub(state, 1, 1), call('HLEN', K.P) }
end

-- number, bytes, time to live
if A[3] == 'piece' then
  call('HSET', K.P, A[4], A[5])
  if call('PTTL', K.O) ~= -1 then call('PEXPIRE', K.P, A[6]) end
  return { 'ok' }
end

-- session, number of pieces: the session has the reference
if A[3] == 'confirm' then
  if call('HEXISTS', K.O, A[4]) == 0 or call('HLEN', K.P) < tonumber(A[5]) then return { 'gone' } end
  call('HSET', K.O, A[4], 'k' .. whole(time))
  call('PERSIST', K.O)
  call('PERSIST', K.P)
  return { 'ok' }
end

-- session: the session does not get the reference
if A[3] == 'unclaim' then
  if string.sub(call('HGET', K.O, A[4]) or '', 1, 1) == 'c' then call('HDEL', K.O, A[4]) end
  return { 'ok' }
end

-- how long a claim holds in microseconds, time to live, then for each session its state as it was seen, and '1' if it has the
-- reference: returns whether the bytes were removed, and how many claims are left. Pieces are written before the reference, so
-- the bytes of a session that has it are complete.
local oldest, there = time - tonumber(A[4]), call('EXISTS', K.O, K.P)
for i = 6, #A, 3 do
  if call('HGET', K.O, A[i]) == A[i + 1] then
    local claim = string.sub(A[i + 1], 1, 1) == 'c'
    if A[i + 2] == '1' then
      if claim then
        call('HSET', K.O, A[i], 'k' .. whole(time))
        call('PERSIST', K.O)
        call('PERSIST', K.P)
      end
    elseif not claim or tonumber(string.sub(A[i + 1], 2)) <= oldest then
      call('HDEL', K.O, A[i])
    end
  end
end
local claims, kept = 0, 0
for _, state in ipairs(call('HVALS', K.O)) do
  if string.sub(state, 1, 1) == 'c' then claims = claims + 1 else kept = kept + 1 end
end
if claims + kept == 0 then
  call('UNLINK', K.O, K.P)
  return { there > 0 and 1 or 0, 0 }
end
if kept == 0 then
  call('PEXPIRE', K.O, A[5])
  call('PEXPIRE', K.P, A[5])
end
return { 0, claims }
