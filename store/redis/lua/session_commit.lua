-- The commit of an ordinary step: messages, writes to custom state, calls, the run's progress and a checkpoint. It does what
-- session_write.lua would, with less to find out: the lease and the run are compared as one string ('pack'), what the committer
-- is told beside is another ('told'), numbers are taken from what the commands answer, and the arguments have fixed places.
--
-- KEYS are the header, bodies and metas of messages, names and checkpoints; the log and kinds of custom state, if it is written
-- to; calls, if there are any; and if the commit goes with chunks its stream's header, of which ARGV[1] then says what they have
-- left there. ARGV[3] on: key, version, the version after, what the header's pack begins with, steps or nothing, checkpoint id or
-- nothing, its source, its row from the step to the run; the writes or nothing, number of messages, number of keys; the messages'
-- bodies, metas and names, of which a result that is to be taken from its call's row has only the call's id as a name; the
-- checkpoint's name if there is one; for each key name and kind, behind '1' if it must be a list. What most steps do not have may
-- be missing: the message whose results are promoted, number of calls' rows, their ten parts; the run's reason and seven numbers
-- to add to its usage.
--
-- It answers as session_write.lua does, but what is done as one string. It is the script that runs most by far: it defines no
-- functions, needs no prelude, and hands its arguments on as they lie, without tables of its own where it can. What would not fit
-- Lua's stack is committed through session_write.lua.

local call, A, K = redis.call, ARGV, KEYS
local h, now = K[1], A[2]
if now == '' then
  local t = call('TIME')
  local part = t[2]
  now = #part == 6 and t[1] .. part or t[1] .. string.sub('00000' .. part, -6)
end

local got = call('HMGET', h, 'v', 'commit', 'pack', 'told', 'msgs', 'usage')
local version, pack, told, usage, held = got[1], got[3], got[4] or '\0\0\0', got[6] or '', #A[6]
if not version then return { 0, now, { 'missing' }, {} } end
if A[3] ~= '' and got[2] == A[3] then
  return '2\0' .. now .. '\0' .. version .. '\0' .. got[5] .. '\0' .. (call('HGET', h, 'cp') or '') .. '\0' .. told
end
if version ~= A[4] or string.sub(pack, 1, held) ~= A[6] then return { 0, now, { 'guard' }, call('HGETALL', h) } end
if K[9] then
  local field, value = string.match(A[1], '^(.*)%z(.*)$')
  if call('HGET', K[9], field) ~= value then return { 0, now, { 'chunks' }, {} } end
end

local point, n, messages = A[8], tonumber(A[12]), got[5]
local metas, names = 13 + n, 13 + 2 * n -- before the first of each, as 13 is before the first body
local last = point ~= '' and names + n + 1 or names + n
local states = last + 1
local rest = states + 2 * A[13]
local promoted = A[rest] or ''

-- Results that are promoted come from their calls' rows. Names must be new: messages' and the checkpoint's.
for i = 1, n do
  if A[metas + i] == '' then
    local row = promoted .. '\0' .. A[names + i] .. '\0'
    local found = call('HMGET', K[8], row .. 's', row .. 'q', row .. 'r')
    if found[1] ~= 'settled' or not found[3] then return { 0, now, { 'unsettled', A[names + i] }, call('HGETALL', h) } end
    local id = string.match(found[2], '^[^%z]*')
    A[metas + i], A[13 + i], A[names + i] = found[2], found[3], id ~= '' and 'm' .. id or ''
  end
  for j = names + 1, names + i - 1 do
    if A[j] == A[names + i] and A[j] ~= '' then return { 0, now, { 'duplicate', string.sub(A[j], 2) }, call('HGETALL', h) } end
  end
end
if last > names then
  local found = call('HMGET', K[4], unpack(A, names + 1, last))
  for i = 1, last - names do
    if found[i] then
      return { 0, now, { i <= n and 'duplicate' or 'checkpoint', string.sub(A[names + i], 2) }, call('HGETALL', h) }
    end
  end
end

-- Keys of custom state: an append needs a list, and only kinds that change are written.
local set, gone
for i = states, rest - 1, 2 do
  local key, kind, becomes = A[i], call('HGET', K[7], A[i]) or '', A[i + 1]
  if kind ~= becomes then
    if string.byte(becomes) == 49 then
      if kind == 'v' then return { 0, now, { 'notlist', key }, call('HGETALL', h) } end
      becomes = string.sub(becomes, 2)
    end
    if becomes == '' then
      gone = gone or {}
      gone[#gone + 1] = key
    elseif kind ~= becomes then
      set = set or {}
      set[#set + 1] = key
      set[#set + 1] = becomes
    end
  end
end

-- effects: from here on everything is done.

local numbered, m = {}, 0
for i = 1, n do
  if A[names + i] ~= '' then
    numbered[m + 1], numbered[m + 2] = A[names + i], string.format('%d', messages + i)
    m = m + 2
  end
end
messages = string.format('%d', messages + n) -- once: Lua would print it as a fraction, wherever it is used
if n > 0 then
  call('RPUSH', K[2], unpack(A, 14, metas))
  call('RPUSH', K[3], unpack(A, metas + 1, names))
end
if point ~= '' then
  local row = messages .. '\0' .. A[5] .. '\0' .. now .. '\0' .. A[10] .. '\0' .. string.sub(pack, held + 1)
  numbered[m + 1], numbered[m + 2] = A[last], string.format('%d', call('RPUSH', K[5], row))
  m = m + 2
end
if m > 0 then call('HSET', K[4], unpack(numbered)) end
if A[11] ~= '' then
  call('XADD', K[6], A[5] .. '-0', 'b', A[11])
  if set then call('HSET', K[7], unpack(set)) end
  if gone then call('HDEL', K[7], unpack(gone)) end
end

if A[rest] then
  if promoted ~= '' then
    local prefix, rows = promoted .. '\0', {}
    for _, field in ipairs(call('HKEYS', K[8])) do
      if string.sub(field, 1, #prefix) == prefix then rows[#rows + 1] = field end
    end
    for i = 1, #rows, 1000 do call('HDEL', K[8], unpack(rows, i, math.min(i + 999, #rows))) end
  end
  local at = rest + 1
  for _ = 1, tonumber(A[at]) do
    local name = A[at + 1] .. '\0' .. A[at + 2] .. '\0'
    local was = call('HGET', K[8], name .. 's')
    if was ~= 'settled' then
      if was then call('HDEL', K[8], name .. 'b', name .. 'w', name .. 'v') end
      local parts = { name .. 'n', A[at + 3], name .. 's', A[at + 4], name .. 'd', A[at + 7], name .. 'a', now }
      for attribute, value in pairs({ b = A[at + 5], e = A[at + 6], r = A[at + 8], q = A[at + 9], w = A[at + 10] }) do
        if value ~= '' then
          parts[#parts + 1] = name .. attribute
          parts[#parts + 1] = value == '*' and now or value
        end
      end
      call('HSET', K[8], unpack(parts))
    end
    at = at + 10
  end
  if A[at + 1] then
    local a, b, c, d, e, f, g = string.match(usage, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
    usage = string.format('%d %d %d %d %d %d %d', (a or 0) + A[at + 2], (b or 0) + A[at + 3], (c or 0) + A[at + 4],
      (d or 0) + A[at + 5], (e or 0) + A[at + 6], (f or 0) + A[at + 7], (g or 0) + A[at + 8])
    if A[at + 1] ~= '' then call('HSET', h, 'rreason', A[at + 1]) end
  end
end

local steps = A[7]
if point ~= '' and steps ~= '' then
  call('HSET', h, 'v', A[5], 'commit', A[3], 'updated', now, 'msgs', messages, 'cp', point, 'cpsrc', A[9], 'cpat', now,
    'steps', steps, 'rsteps', steps, 'usage', usage)
else
  call('HSET', h, 'v', A[5], 'commit', A[3], 'updated', now, 'msgs', messages, 'usage', usage)
  if steps ~= '' then call('HSET', h, 'steps', steps, 'rsteps', steps) end
  if point ~= '' then
    call('HSET', h, 'cp', point, 'cpsrc', A[9], 'cpat', now)
  else
    point = call('HGET', h, 'cp') or ''
  end
end
return '1\0' .. now .. '\0' .. A[5] .. '\0' .. messages .. '\0' .. point .. '\0' .. told
