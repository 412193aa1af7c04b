-- The commit of an ordinary step: messages, writes to custom state, calls, the run's progress and a checkpoint. It does what
-- session_write.lua would, with less to find out: the lease and the run are compared as one string ('pack'), what the committer
-- is told beside is another ('told'), numbers are taken from what the commands answer, and the arguments have fixed places.
--
-- KEYS are the header, bodies and metas of messages, names, the log and kinds of custom state, checkpoints and calls. ARGV[3] on:
-- key, version, the version after, what the header's pack begins with, steps or nothing, checkpoint id or nothing, its source,
-- its row from the step to the run, the message whose results are promoted, number of messages, for each id, meta and body, or
-- its call's id and nothing; the writes or nothing, number of keys, for each name, whether it must be a list, and its kind; number of
-- calls' rows, their ten parts; and if the run's record changes its reason and seven numbers.

local A = ARGV
local h = KEYS[1]
local got = call('HMGET', h, 'v', 'commit', 'pack', 'told')

local function refuse(...)
  return { 0, now, { ... }, call('HGETALL', h) }
end

if not got[1] then return refuse('missing') end
local told = got[4] or '\0\0\0'
if A[3] ~= '' and got[2] == A[3] then
  return { 2, now, got[1] .. '\0' .. call('LLEN', KEYS[2]) .. '\0' .. (call('HGET', h, 'cp') or '') .. '\0' .. told }
end
local pack, held = got[3], #A[6]
if got[1] ~= A[4] or string.sub(pack, 1, held) ~= A[6] then return refuse('guard') end

-- Names that must be new: messages' and the checkpoint's.
local at, n = 13, tonumber(A[12])
local bodies, metas, names, wanted = {}, {}, {}, {}
local promoted = A[11]
for i = 1, n do
  local id, meta, body = A[at], A[at + 1], A[at + 2]
  if meta == '' then
    local row = promoted .. '\0' .. id .. '\0'
    local found = call('HMGET', KEYS[8], row .. 's', row .. 'q', row .. 'r')
    if found[1] ~= 'settled' or not found[3] then return refuse('unsettled', id) end
    meta, body = found[2], found[3]
    id = split(meta)[1]
  end
  bodies[i], metas[i] = body, meta
  if id ~= '' then
    local name = 'm' .. id
    if wanted[name] then return refuse('duplicate', id) end
    wanted[name] = i
    names[#names + 1] = name
  end
  at = at + 3
end
local point = A[8]
if point ~= '' then names[#names + 1] = 'c' .. point end
for from = 1, #names, 1000 do
  local found = call('HMGET', KEYS[4], unpack(names, from, math.min(from + 999, #names)))
  for i = 1, #found do
    if found[i] then
      local name = names[from + i - 1]
      return refuse(string.sub(name, 1, 1) == 'm' and 'duplicate' or 'checkpoint', string.sub(name, 2))
    end
  end
end

-- Keys of custom state: an append needs a list, and only kinds that change are written.
local writes, set, gone = A[at], nil, nil
local last = at + 1 + 3 * A[at + 1]
for i = at + 2, last, 3 do
  local kind = call('HGET', KEYS[6], A[i]) or ''
  if kind == 'v' and A[i + 1] == '1' then return refuse('notlist', A[i]) end
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

local fields = { 'v', A[5], 'commit', A[3], 'updated', now }
local messages
if n == 1 then
  messages = call('RPUSH', KEYS[2], bodies[1])
  call('RPUSH', KEYS[3], metas[1])
else
  each('RPUSH', KEYS[2], bodies)
  each('RPUSH', KEYS[3], metas)
  messages = call('LLEN', KEYS[2])
end
if n > 0 then fields[7], fields[8] = 'msgs', messages end
if promoted ~= '' then
  local prefix, rows = promoted .. '\0', {}
  for _, field in ipairs(call('HKEYS', KEYS[8])) do
    if string.sub(field, 1, #prefix) == prefix then rows[#rows + 1] = field end
  end
  each('HDEL', KEYS[8], rows)
end

local numbered = {}
for i = 1, #names do
  local number = wanted[names[i]]
  if number then
    numbered[#numbered + 1] = names[i]
    numbered[#numbered + 1] = messages - n + number
  end
end
if point ~= '' then
  numbered[#numbered + 1] = 'c' .. point
  numbered[#numbered + 1] = call('RPUSH', KEYS[7], messages .. '\0' .. A[5] .. '\0' .. now .. '\0' .. A[10] .. '\0' .. string.sub(pack, held + 1))
  local m = #fields
  fields[m + 1], fields[m + 2], fields[m + 3], fields[m + 4], fields[m + 5], fields[m + 6] = 'cp', point, 'cpsrc', A[9], 'cpat', now
else
  point = call('HGET', h, 'cp') or ''
end
each('HSET', KEYS[4], numbered)

if writes ~= '' then
  call('XADD', KEYS[5], A[5] .. '-0', 'b', writes)
  if set then each('HSET', KEYS[6], set) end
  if gone then each('HDEL', KEYS[6], gone) end
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

local m = #fields
if A[7] ~= '' then
  fields[m + 1], fields[m + 2], fields[m + 3], fields[m + 4] = 'steps', A[7], 'rsteps', A[7]
  m = m + 4
end
if A[at + 1] then
  if A[at + 1] ~= '' then
    fields[m + 1], fields[m + 2] = 'rreason', A[at + 1]
    m = m + 2
  end
  local usage, sums = call('HGET', h, 'usage') or '', {}
  for used in string.gmatch(usage ~= '' and usage or '0 0 0 0 0 0 0', '%S+') do
    sums[#sums + 1] = whole(used + A[at + 2 + #sums])
  end
  fields[m + 1], fields[m + 2] = 'usage', table.concat(sums, ' ')
end
call('HSET', h, unpack(fields))
return { 1, now, A[5] .. '\0' .. messages .. '\0' .. point .. '\0' .. told }
