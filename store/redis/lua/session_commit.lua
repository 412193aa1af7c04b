-- The commit of an ordinary step: messages, writes to custom state, calls, the run's progress and a checkpoint. It does what
-- session_write.lua would, with less to find out: the lease and the run are compared as one string ('pack'), what the committer
-- is told beside is another ('told'), numbers are taken from what the commands answer, and the arguments have fixed places.
--
-- KEYS are the header, bodies and metas of messages, names, the log and kinds of custom state, checkpoints and calls, and if the
-- commit goes with chunks its stream's header, of which ARGV[1] then says what they have left there. ARGV[3] on: key, version, the version after, what the header's pack begins with, steps or nothing, checkpoint id or nothing, its source,
-- its row from the step to the run, the message whose results are promoted, number of messages, for each id, meta and body, or
-- its call's id and nothing; the writes or nothing, number of keys, for each name, whether it must be a list, and its kind; number of
-- calls' rows, their ten parts; and if the run's record changes its reason and seven numbers.
--
-- It is the script that runs most by far, so it defines no functions and needs no prelude. What would not fit Lua's stack is
-- committed through session_write.lua.

local call, A, h = redis.call, ARGV, KEYS[1]
local now = A[2]
if now == '' then
  local t = call('TIME')
  now = t[1] .. string.sub(t[2] + 1000000, 2)
end

local got = call('HMGET', h, 'v', 'commit', 'pack', 'told', 'msgs')
if not got[1] then return { 0, now, { 'missing' }, {} } end
local told, messages = got[4] or '\0\0\0', tonumber(got[5])
if A[3] ~= '' and got[2] == A[3] then
  return { 2, now, got[1] .. '\0' .. got[5] .. '\0' .. (call('HGET', h, 'cp') or '') .. '\0' .. told }
end
local pack, held = got[3], #A[6]
if got[1] ~= A[4] or string.sub(pack, 1, held) ~= A[6] then return { 0, now, { 'guard' }, call('HGETALL', h) } end

if KEYS[9] then
  local field, value = string.match(A[1], '^(.*)%z(.*)$')
  if call('HGET', KEYS[9], field) ~= value then return { 0, now, { 'chunks' }, {} } end
end

-- Names that must be new: messages' and the checkpoint's.
local at, n, promoted, point = 13, tonumber(A[12]), A[11], A[8]
local bodies, metas, names, numbered = {}, {}, {}, {}
for i = 1, n do
  local id, meta, body = A[at], A[at + 1], A[at + 2]
  if meta == '' then
    local row = promoted .. '\0' .. id .. '\0'
    local found = call('HMGET', KEYS[8], row .. 's', row .. 'q', row .. 'r')
    if found[1] ~= 'settled' or not found[3] then return { 0, now, { 'unsettled', id }, call('HGETALL', h) } end
    meta, body = found[2], found[3]
    id = string.match(meta, '^[^%z]*')
  end
  bodies[i], metas[i] = body, meta
  if id ~= '' then
    local name, m = 'm' .. id, #names
    for j = 1, m do
      if names[j] == name then return { 0, now, { 'duplicate', id }, call('HGETALL', h) } end
    end
    names[m + 1], numbered[2 * m + 1], numbered[2 * m + 2] = name, name, string.format('%d', messages + i)
  end
  at = at + 3
end
local m = #names
if point ~= '' then names[m + 1] = 'c' .. point end
if #names > 0 then
  local found = call('HMGET', KEYS[4], unpack(names))
  for i = 1, #names do
    if found[i] then
      return { 0, now, { i <= m and 'duplicate' or 'checkpoint', string.sub(names[i], 2) }, call('HGETALL', h) }
    end
  end
end

-- Keys of custom state: an append needs a list, and only kinds that change are written.
local writes, set, gone = A[at], nil, nil
local last = at + 1 + 3 * A[at + 1]
for i = at + 2, last, 3 do
  local kind = call('HGET', KEYS[6], A[i]) or ''
  if kind == 'v' and A[i + 1] == '1' then return { 0, now, { 'notlist', A[i] }, call('HGETALL', h) } end
  if kind ~= A[i + 2] then
    if A[i + 2] == '' then
      gone = gone or {}
      gone[#gone + 1] = A[i]
    else
      set = set or {}
      set[#set + 1] = A[i]
      set[#set + 1] = A[i + 2]
    end
  end
end

-- effects: from here on everything is done.

messages = string.format('%d', messages + n) -- once: Lua would print it as a fraction, wherever it is used
local fields = { 'v', A[5], 'commit', A[3], 'updated', now, 'msgs', messages }
if n == 1 then
  call('RPUSH', KEYS[2], bodies[1])
  call('RPUSH', KEYS[3], metas[1])
elseif n > 0 then
  call('RPUSH', KEYS[2], unpack(bodies))
  call('RPUSH', KEYS[3], unpack(metas))
end
if promoted ~= '' then
  local prefix, rows = promoted .. '\0', {}
  for _, field in ipairs(call('HKEYS', KEYS[8])) do
    if string.sub(field, 1, #prefix) == prefix then rows[#rows + 1] = field end
  end
  for i = 1, #rows, 1000 do call('HDEL', KEYS[8], unpack(rows, i, math.min(i + 999, #rows))) end
end

local f = 8
if point ~= '' then
  numbered[2 * m + 1] = names[m + 1]
  numbered[2 * m + 2] = call('RPUSH', KEYS[7],
    messages .. '\0' .. A[5] .. '\0' .. now .. '\0' .. A[10] .. '\0' .. string.sub(pack, held + 1))
  fields[9], fields[10], fields[11], fields[12], fields[13], fields[14] = 'cp', point, 'cpsrc', A[9], 'cpat', now
  f = 14
else
  point = call('HGET', h, 'cp') or ''
end
if #numbered > 0 then call('HSET', KEYS[4], unpack(numbered)) end

if writes ~= '' then
  call('XADD', KEYS[5], A[5] .. '-0', 'b', writes)
  if set then call('HSET', KEYS[6], unpack(set)) end
  if gone then call('HDEL', KEYS[6], unpack(gone)) end
end

at = last + 1
for _ = 1, tonumber(A[at]) do
  local row = A[at + 1] .. '\0' .. A[at + 2] .. '\0'
  if call('HEXISTS', KEYS[8], row .. 's') == 0 then
    local parts = { row .. 'n', A[at + 3], row .. 's', A[at + 4], row .. 'd', A[at + 7], row .. 'a', now }
    for attribute, value in pairs({ b = A[at + 5], e = A[at + 6], r = A[at + 8], q = A[at + 9], w = A[at + 10] }) do
      if value ~= '' then
        parts[#parts + 1] = row .. attribute
        parts[#parts + 1] = value == '*' and now or value
      end
    end
    call('HSET', KEYS[8], unpack(parts))
  end
  at = at + 10
end

if A[7] ~= '' then
  fields[f + 1], fields[f + 2], fields[f + 3], fields[f + 4] = 'steps', A[7], 'rsteps', A[7]
  f = f + 4
end
if A[at + 1] then
  if A[at + 1] ~= '' then
    fields[f + 1], fields[f + 2] = 'rreason', A[at + 1]
    f = f + 2
  end
  local usage, sums = call('HGET', h, 'usage') or '', {}
  for used in string.gmatch(usage ~= '' and usage or '0 0 0 0 0 0 0', '%S+') do
    sums[#sums + 1] = string.format('%.0f', used + A[at + 2 + #sums])
  end
  fields[f + 1], fields[f + 2] = 'usage', table.concat(sums, ' ')
end
call('HSET', h, unpack(fields))
return { 1, now, A[5] .. '\0' .. messages .. '\0' .. point .. '\0' .. told }
