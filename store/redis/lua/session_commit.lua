-- The commit of an ordinary step: messages, writes to custom state, calls, the run's progress and a checkpoint. It does what
-- session_write.lua would, with less to find out: the lease and the run are compared as one string ('pack'), what the committer
-- is told beside is another ('told'), numbers are taken from what the commands answer, and the arguments have fixed places.
--
-- KEYS are the header, bodies and metas of messages, names, the log and kinds of custom state and checkpoints; calls, if there are
-- any; and if the commit goes with chunks its stream's header, of which ARGV[1] then says what they have left there. ARGV[3] on:
-- key, version, the version after, what the header's pack begins with, steps or nothing, checkpoint id or nothing, its source, its
-- row from the step to the run; the writes or nothing, number of messages, number of keys; for each message id, meta and body, or
-- its call's id and nothing; for each key name and kind, behind '1' if it must be a list. What most steps do not have may be
-- missing: the message whose results are promoted, number of calls' rows, their ten parts; the run's reason and seven numbers to
-- add to its usage.
--
-- It answers as session_write.lua does, but what is done as one string. It is the script that runs most by far: it defines no
-- functions, needs no prelude, and has a shorter way for a single message. What would not fit Lua's stack is committed through
-- session_write.lua.

local call, A, K = redis.call, ARGV, KEYS
local h, now = K[1], A[2]
if now == '' then
  local t = call('TIME')
  local part = t[2]
  now = #part == 6 and t[1] .. part or t[1] .. string.sub('00000' .. part, -6)
end

local got = call('HMGET', h, 'v', 'commit', 'pack', 'told', 'msgs')
local version, pack, told, held = got[1], got[3], got[4] or '\0\0\0', #A[6]
if not version then return { 0, now, { 'missing' }, {} } end
if A[3] ~= '' and got[2] == A[3] then
  return '2\0' .. now .. '\0' .. version .. '\0' .. got[5] .. '\0' .. (call('HGET', h, 'cp') or '') .. '\0' .. told
end
if version ~= A[4] or string.sub(pack, 1, held) ~= A[6] then return { 0, now, { 'guard' }, call('HGETALL', h) } end
if K[9] then
  local field, value = string.match(A[1], '^(.*)%z(.*)$')
  if call('HGET', K[9], field) ~= value then return { 0, now, { 'chunks' }, {} } end
end

-- Names that must be new: messages' and the checkpoint's.
local point, n, messages = A[8], tonumber(A[12]), got[5]
local states = 14 + 3 * n
local rest = states + 2 * A[13]
local promoted = A[rest] or ''
local single = n == 1 and point ~= '' and A[14] ~= '' and A[15] ~= ''
local bodies, metas, names, numbered, m
if single then
  messages = string.format('%d', messages + 1)
  local found = call('HMGET', K[4], 'm' .. A[14], 'c' .. point)
  if found[1] then return { 0, now, { 'duplicate', A[14] }, call('HGETALL', h) } end
  if found[2] then return { 0, now, { 'checkpoint', point }, call('HGETALL', h) } end
else
  bodies, metas, names, numbered = {}, {}, {}, {}
  for i = 1, n do
    local at = 11 + 3 * i
    local id, meta, body = A[at], A[at + 1], A[at + 2]
    if meta == '' then
      local row = promoted .. '\0' .. id .. '\0'
      local found = call('HMGET', K[8], row .. 's', row .. 'q', row .. 'r')
      if found[1] ~= 'settled' or not found[3] then return { 0, now, { 'unsettled', id }, call('HGETALL', h) } end
      meta, body = found[2], found[3]
      id = string.match(meta, '^[^%z]*')
    end
    bodies[i], metas[i] = body, meta
    if id ~= '' then
      local name, count = 'm' .. id, #names
      for j = 1, count do
        if names[j] == name then return { 0, now, { 'duplicate', id }, call('HGETALL', h) } end
      end
      names[count + 1] = name
      numbered[2 * count + 1], numbered[2 * count + 2] = name, string.format('%d', messages + i)
    end
  end
  messages = string.format('%d', messages + n) -- once: Lua would print it as a fraction, wherever it is used
  m = #names
  if point ~= '' then names[m + 1] = 'c' .. point end
  if #names > 0 then
    local found = call('HMGET', K[4], unpack(names))
    for i = 1, #names do
      if found[i] then
        return { 0, now, { i <= m and 'duplicate' or 'checkpoint', string.sub(names[i], 2) }, call('HGETALL', h) }
      end
    end
  end
end

-- Keys of custom state: an append needs a list, and only kinds that change are written.
local set, gone
for i = states, rest - 1, 2 do
  local key, kind, becomes = A[i], call('HGET', K[6], A[i]) or '', A[i + 1]
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

local row = ''
if point ~= '' then row = messages .. '\0' .. A[5] .. '\0' .. now .. '\0' .. A[10] .. '\0' .. string.sub(pack, held + 1) end
if single then
  call('RPUSH', K[2], A[16])
  call('RPUSH', K[3], A[15])
  call('HSET', K[4], 'm' .. A[14], messages, 'c' .. point, string.format('%d', call('RPUSH', K[7], row)))
else
  if n > 0 then
    call('RPUSH', K[2], unpack(bodies))
    call('RPUSH', K[3], unpack(metas))
  end
  if point ~= '' then numbered[2 * m + 1], numbered[2 * m + 2] = names[m + 1], call('RPUSH', K[7], row) end
  if #numbered > 0 then call('HSET', K[4], unpack(numbered)) end
end
if A[11] ~= '' then
  call('XADD', K[5], A[5] .. '-0', 'b', A[11])
  if set then call('HSET', K[6], unpack(set)) end
  if gone then call('HDEL', K[6], unpack(gone)) end
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
    if call('HEXISTS', K[8], name .. 's') == 0 then
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
    local usage, sums = call('HGET', h, 'usage') or '', {}
    for used in string.gmatch(usage ~= '' and usage or '0 0 0 0 0 0 0', '%S+') do
      sums[#sums + 1] = string.format('%.0f', used + A[at + 2 + #sums])
    end
    usage = table.concat(sums, ' ')
    if A[at + 1] ~= '' then
      call('HSET', h, 'usage', usage, 'rreason', A[at + 1])
    else
      call('HSET', h, 'usage', usage)
    end
  end
end

local steps = A[7]
if point ~= '' and steps ~= '' then
  call('HSET', h, 'v', A[5], 'commit', A[3], 'updated', now, 'msgs', messages, 'cp', point, 'cpsrc', A[9], 'cpat', now,
    'steps', steps, 'rsteps', steps)
else
  call('HSET', h, 'v', A[5], 'commit', A[3], 'updated', now, 'msgs', messages)
  if steps ~= '' then call('HSET', h, 'steps', steps, 'rsteps', steps) end
  if point ~= '' then
    call('HSET', h, 'cp', point, 'cpsrc', A[9], 'cpat', now)
  else
    point = call('HGET', h, 'cp') or ''
  end
end
return '1\0' .. now .. '\0' .. A[5] .. '\0' .. messages .. '\0' .. point .. '\0' .. told
