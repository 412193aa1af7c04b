-- Changes one session. ARGV[3] is a token that identifies this request, so that a request sent again after a lost answer is
-- recognised; from 4 on, for each operation its name, the number of its arguments, and the arguments.
--
-- An operation may have a check and may have an effect. All checks come before the first effect: a script cannot be
-- rolled back. So nothing below the line "effects" may refuse or fail.
--
-- Answers: {1, now, the session's position, results…} done; {2, …} the same commit had been applied; {3, …} the same request
-- had been carried out; {0, now, {why, …}, header} refused.
--
-- The commit of an ordinary step goes through session_commit.lua, which must do the same.

local A = ARGV

-- The header's fields, read when first asked for; most operations need these.
local hot = {
  'v', 'owner', 'epoch', 'run', 'rstatus', 'commit', 'status', 'msgs', 'inbox', 'cp', 'turn', 'stopk', 'stopr',
  'stopa', 'tok', 'mortal',
}
local H = setmetatable({}, {
  __index = function(t, field)
    local value = call('HGET', K.h, field) or ''
    rawset(t, field, value)
    return value
  end,
})
local got = call('HMGET', K.h, unpack(hot))
for i, field in ipairs(hot) do rawset(H, field, got[i] or '') end
local exists = got[1] and true or false

-- What session_commit.lua compares at once and writes into checkpoints is also kept as one field, and what it returns as another.
local packed = { owner = true, epoch = true, run = true, rstatus = true, turn = true, status = true }
local telling = { inbox = true, stopk = true, stopr = true, stopa = true }
local repack, retell = false, false

local dirty = {}
local function put(field, value)
  rawset(H, field, value)
  dirty[#dirty + 1] = field
  dirty[#dirty + 1] = value
  if packed[field] then repack = true end
  if telling[field] then retell = true end
end

local function count(field, by)
  local n = whole((tonumber(H[field]) or 0) + by)
  put(field, n)
  return n
end

local function given(value) return value == '*' and now or value end

local results = {} -- what operations answer
local stop = { H.stopk, H.stopr, H.stopa } -- also one that an outcome consumes

local function answer(kind)
  local out = { kind, now, table.concat({ H.v, H.msgs, H.cp, H.inbox, stop[1], stop[2], stop[3] }, '\0') }
  for _, result in ipairs(results) do out[#out + 1] = result end
  return out
end

local function refuse(why)
  if why[1] == 'repeated' then return answer(2) end
  return { 0, now, why, call('HGETALL', K.h) }
end

local check, effect = {}, {}

-- Guards -------------------------------------------------------------------------------------------------------------

-- The session must not exist. Its epochs begin at the server's time, whatever the store's clock says: they are above all epochs
-- of a deleted session with the same id. The answer contains the first one.
check.absent = function()
  if exists then return refuse({ 'exists' }) end
end

effect.absent = function()
  local server = call('TIME')
  put('epoch', whole(tonumber(server[1]) * 1000000 + tonumber(server[2])))
  put('first', H.epoch)
  results[#results + 1] = H.epoch
end

-- Header fields must still have these values.
check.same = function(first, last)
  for i = first, last, 2 do
    if H[A[i]] ~= A[i + 1] then return refuse({ 'moved' }) end
  end
end

-- Fields of another hash must still have these values.
check.match = function(first, last)
  for i = first + 1, last, 2 do
    if (call('HGET', K[A[first]], A[i]) or '') ~= A[i + 1] then return refuse({ 'moved' }) end
  end
end

-- owner, epoch
check.fence = function(first)
  if A[first] == '' or H.owner ~= A[first] or H.epoch ~= A[first + 1] then return refuse({ 'fence' }) end
end

-- version
check.version = function(first)
  if H.v ~= A[first] then return refuse({ 'version' }) end
end

-- key, version, owner, epoch, run, the statuses that the new one may follow or nothing
check.commit = function(first)
  if A[first] ~= '' and H.commit == A[first] then
    if H.run == A[first + 4] and H.rstatus ~= 'running' then stop = { H.endk, H.endr, H.enda } end
    return refuse({ 'repeated' })
  end
  local from = A[first + 5]
  if A[first + 2] == '' or H.owner ~= A[first + 2] or H.epoch ~= A[first + 3] or H.v ~= A[first + 1] or H.run ~= A[first + 4]
    or H.rstatus ~= 'running' or (from ~= '' and not string.find(from, ' ' .. H.status .. ' ', 1, true)) then
    return refuse({ 'guard' })
  end
end

-- A field of the stream's header must have this value, which the chunks of the commit have left there.
check.chunks = function(first)
  if call('HGET', K.S, A[first]) ~= A[first + 1] then return refuse({ 'chunks' }) end
end

-- The header ---------------------------------------------------------------------------------------------------------

-- key: a new version of the document, made by the commit of that key
effect.bump = function(first)
  count('v', 1)
  if H.commit ~= A[first] then put('commit', A[first]) end
  put('updated', now)
end

-- field, value, …: '*' is the time
effect.set = function(first, last)
  for i = first, last, 2 do put(A[i], given(A[i + 1])) end
end

effect.raise = function() count('epoch', 1) end

-- letter, field, value, …
effect.hset = function(first, last)
  local pairs = {}
  for i = first + 1, last do pairs[#pairs + 1] = A[i] end
  each('HSET', K[A[first]], pairs)
end

-- letter, field, …
effect.hdel = function(first, last)
  local fields = {}
  for i = first + 1, last do fields[#fields + 1] = A[i] end
  each('HDEL', K[A[first]], fields)
end

-- Messages -----------------------------------------------------------------------------------------------------------

local keep -- how many messages a rewind leaves

check.keep = function(first)
  keep = tonumber(A[first])
  if keep > (tonumber(H.msgs) or 0) then return refuse({ 'keep' }) end
end

-- The marks of the first messages, as Marks.Within of package session has it.
local function marks_within(n)
  local out = {}
  for marker, from in string.gmatch(H.marks, '(%d+) (%d+)') do
    if tonumber(marker) <= n then out[#out + 1] = marker .. ' ' .. from .. ' ' end
  end
  return out
end

-- For each marker among the messages that are appended next: its place among them, and how many messages before it its
-- view needs, or -1 if it needs those that the marker before it does. As Marks.After of package session has it.
effect.mark = function(first, last)
  for i = first, last, 2 do
    local number, kept = (tonumber(H.msgs) or 0) + tonumber(A[i]), tonumber(A[i + 1])
    local marks = marks_within(number - 1)
    local from = 1
    if kept >= 0 then
      from = math.max(1, number - kept)
    elseif #marks > 0 then
      from = tonumber(string.match(marks[#marks], ' (%d+) '))
    end
    marks[#marks + 1] = whole(number) .. ' ' .. whole(from) .. ' '
    put('marks', table.concat(marks, '', math.max(1, #marks - 7)))
  end
end

local ids, metas, bodies -- what is to be appended

-- The message whose results are promoted, then for each message 'm', id, meta, body, or 'p', call, '', ''.
check.append = function(first, last)
  ids, metas, bodies = {}, {}, {}
  local promoted = A[first]
  for i = first + 1, last, 4 do
    local id, meta, body = A[i + 1], A[i + 2], A[i + 3]
    if A[i] == 'p' then
      local row = promoted .. '\0' .. id .. '\0'
      local found = call('HMGET', K.t, row .. 's', row .. 'q', row .. 'r')
      if found[1] ~= 'settled' or not found[3] then return refuse({ 'unsettled', id }) end
      meta, body = found[2], found[3]
      id = split(meta)[1]
    end
    ids[#ids + 1], metas[#metas + 1], bodies[#bodies + 1] = id, meta, body
  end
  local seen = {}
  for i = 1, #ids do
    local id = ids[i]
    if id ~= '' then
      local number = call('HGET', K.i, 'm' .. id)
      if seen[id] or (number and (not keep or tonumber(number) <= keep)) then return refuse({ 'duplicate', id }) end
      seen[id] = true
    end
  end
end

local function drop_calls(message)
  local prefix, fields = message .. '\0', {}
  for _, field in ipairs(call('HKEYS', K.t)) do
    if string.sub(field, 1, #prefix) == prefix then fields[#fields + 1] = field end
  end
  each('HDEL', K.t, fields)
  return #fields
end

effect.append = function(first)
  if #bodies > 0 then
    each('RPUSH', K.m, bodies)
    each('RPUSH', K.x, metas)
    local n, numbered = tonumber(H.msgs) or 0, {}
    for i = 1, #ids do
      if ids[i] ~= '' then
        numbered[#numbered + 1] = 'm' .. ids[i]
        numbered[#numbered + 1] = n + i
      end
    end
    each('HSET', K.i, numbered)
    put('msgs', n + #bodies)
  end
  if A[first] ~= '' then drop_calls(A[first]) end
end

-- undo undoes checkpoints that count dropped messages. It starts with the newest; once one stands, all earlier ones do.
local function undo()
  local id = H.cp
  local number = tonumber(id ~= '' and call('HGET', K.i, 'c' .. id) or '0')
  local row
  while number > 0 do
    local mark = 'u' .. whole(number)
    if call('HEXISTS', K.c, mark) == 0 then
      row = call('LINDEX', K.p, number - 1)
      local counted = tonumber(string.match(row, '^%d+'))
      if counted and counted <= keep then break end
      call('HSET', K.c, mark, '1')
    end
    number = number - 1
  end
  local point = number > 0 and split(row) or {}
  put('cp', point[7] or '')
  put('cpsrc', point[5] or '')
  put('cpat', point[3] or '')
end

local pending = { 'd', 's', 'm', 'l', 't', 'i', 'r', 'e', 'n', 'z', 'u' } -- the attributes of a wait

-- shift moves a wait that has ended out of the open ones.
local function shift(id)
  local fields, pairs = {}, {}
  for _, attribute in ipairs(pending) do fields[#fields + 1] = id .. '\0' .. attribute end
  local values = call('HMGET', K.w, unpack(fields))
  for i, field in ipairs(fields) do
    if values[i] then
      pairs[#pairs + 1] = field
      pairs[#pairs + 1] = values[i]
    end
  end
  each('HSET', K.v, pairs)
  each('HDEL', K.w, fields)
end

-- owners lists what a hash has rows of, from their fields with an attribute.
local function owners(key, attribute)
  local out, tail = {}, '\0' .. attribute
  for _, field in ipairs(call('HKEYS', key)) do
    if string.sub(field, -#tail) == tail then out[#out + 1] = string.sub(field, 1, -#tail - 1) end
  end
  return out
end

-- keep n: drops the other messages, and ends whatever depends on them: checkpoints that count more, calls, waits and children.
-- A wait for a message that is not in the transcript could never be consumed.
effect.keep = function()
  local undone, gone = {}, {}
  for _, meta in ipairs(call('LRANGE', K.x, keep, -1)) do
    local parts = split(meta)
    if parts[1] ~= '' then gone[#gone + 1] = 'm' .. parts[1] end
    for i = 3, #parts do undone[parts[i]] = true end
  end
  each('HDEL', K.i, gone)
  if keep == 0 then
    call('DEL', K.m, K.x)
  else
    call('LTRIM', K.m, 0, keep - 1)
    call('LTRIM', K.x, 0, keep - 1)
  end
  put('msgs', whole(keep))
  if H.marks ~= '' then put('marks', table.concat(marks_within(keep))) end
  undo()

  local function holds(message) return message ~= '' and call('HEXISTS', K.i, 'm' .. message) == 1 end

  local looked = {}
  for _, field in ipairs(call('HKEYS', K.t)) do
    local message = split(field)[1]
    if not looked[message] then
      looked[message] = true
      if not holds(message) then drop_calls(message) end
    end
  end
  for _, id in ipairs(owners(K.w, 's')) do
    if not holds(call('HGET', K.w, id .. '\0m') or '') then
      call('HSET', K.w, id .. '\0s', 'superseded')
      shift(id)
    end
  end

  local made -- the calls that the transcript makes, once somebody asks
  local function makes(id)
    if not made then
      made = {}
      for _, meta in ipairs(call('LRANGE', K.x, 0, -1)) do
        local parts = split(meta)
        for i = 3, #parts do made[parts[i]] = true end
      end
    end
    return made[id]
  end
  for _, child in ipairs(owners(K.f, 's')) do
    local row = call('HMGET', K.f, child .. '\0k', child .. '\0a')
    if undone[row[1]] or (row[2] == '1' and not makes(row[1])) then
      call('HSET', K.f, child .. '\0s', 'superseded', child .. '\0a', '', child .. '\0u', now, child .. '\0v', count('seq', 1))
      call('HDEL', K.a, child)
    end
  end
end

-- Custom state -------------------------------------------------------------------------------------------------------

-- The writes, then for each key its name and what it becomes, 'l', 'v' or '', behind '1' if it must be a list.
check.state = function(first, last)
  for i = first + 1, last, 2 do
    if string.sub(A[i + 1], 1, 1) == '1' and call('HGET', K.k, A[i]) == 'v' then return refuse({ 'notlist', A[i] }) end
  end
end

effect.state = function(first, last)
  call('XADD', K.s, H.v .. '-0', 'b', A[first])
  local set, gone = {}, {}
  for i = first + 1, last, 2 do
    local kind = string.gsub(A[i + 1], '^1', '')
    if kind == '' then
      gone[#gone + 1] = A[i]
    else
      set[#set + 1] = A[i]
      set[#set + 1] = kind
    end
  end
  each('HSET', K.k, set)
  each('HDEL', K.k, gone)
end

-- The whole state, then for each key its name and kind.
effect.whole = function(first, last)
  call('HSET', K.z, H.v, A[first])
  call('DEL', K.k)
  local kinds = {}
  for i = first + 1, last do kinds[#kinds + 1] = A[i] end
  each('HSET', K.k, kinds)
end

-- version, state: what the log says, condensed
effect.snapshot = function(first) call('HSETNX', K.z, A[first], A[first + 1]) end

-- Calls --------------------------------------------------------------------------------------------------------------

-- For each row: message, call, index, status, begun, settled, doc, result, its meta, writes. A row with a result is kept.
effect.calls = function(first, last)
  for i = first, last, 10 do
    local row = A[i] .. '\0' .. A[i + 1] .. '\0'
    local was = call('HGET', K.t, row .. 's')
    if was ~= 'settled' then
      if was then call('HDEL', K.t, row .. 'b', row .. 'w', row .. 'v') end
      local pairs = { row .. 'n', A[i + 2], row .. 's', A[i + 3], row .. 'd', A[i + 6], row .. 'a', now }
      if A[i + 4] ~= '' then
        pairs[#pairs + 1] = row .. 'b'
        pairs[#pairs + 1] = given(A[i + 4])
      end
      if A[i + 5] ~= '' then
        pairs[#pairs + 1] = row .. 'e'
        pairs[#pairs + 1] = given(A[i + 5])
      end
      if A[i + 7] ~= '' then
        pairs[#pairs + 1] = row .. 'r'
        pairs[#pairs + 1] = A[i + 7]
        pairs[#pairs + 1] = row .. 'q'
        pairs[#pairs + 1] = A[i + 8]
      end
      if A[i + 9] ~= '' then
        pairs[#pairs + 1] = row .. 'w'
        pairs[#pairs + 1] = A[i + 9]
      end
      call('HSET', K.t, unpack(pairs))
    end
  end
end

local attributes = { 'n', 's', 'd', 'a', 'b', 'e', 'r', 'q', 'w', 'v' }

local function call_row(row)
  local fields, out = {}, {}
  for _, attribute in ipairs(attributes) do fields[#fields + 1] = row .. attribute end
  local values = call('HMGET', K.t, unpack(fields))
  for i, field in ipairs(fields) do
    if values[i] then
      out[#out + 1] = field
      out[#out + 1] = values[i]
    end
  end
  return out
end

-- message, call
check.claim = function(first)
  if call('HEXISTS', K.t, A[first] .. '\0' .. A[first + 1] .. '\0s') == 0 then return refuse({ 'nocall' }) end
end

effect.claim = function(first)
  local row = A[first] .. '\0' .. A[first + 1] .. '\0'
  local found = call('HMGET', K.t, row .. 's', row .. 'v')
  local fresh = found[1] == 'open'
  if fresh then
    call('HSET', K.t, row .. 's', 'begun', row .. 'b', now, row .. 'v', A[3])
  elseif found[1] == 'begun' and found[2] == A[3] then
    fresh = true -- this very request, sent again
  end
  results[#results + 1] = fresh and '1' or ''
  results[#results + 1] = call_row(row)
end

check.settle = check.claim

-- message, call, doc or nothing, result, its meta, writes: the first writer wins
effect.settle = function(first)
  local row = A[first] .. '\0' .. A[first + 1] .. '\0'
  if call('HGET', K.t, row .. 's') ~= 'settled' then
    call('HSET', K.t, row .. 's', 'settled', row .. 'e', now, row .. 'r', A[first + 3], row .. 'q', A[first + 4])
    if A[first + 2] ~= '' then call('HSET', K.t, row .. 'd', A[first + 2]) end
    if A[first + 5] ~= '' then
      call('HSET', K.t, row .. 'w', A[first + 5])
    else
      call('HDEL', K.t, row .. 'w')
    end
  end
  results[#results + 1] = call_row(row)
end


-- before: deletes rows that no step will ever use, and returns how many, and how many are left.
effect.cleancalls = function(first)
  local open = '' -- the assistant message that only results follow
  if H.status ~= 'completed' and H.status ~= 'failed' then
    for at = -1, -(tonumber(H.msgs) or 0), -1 do
      local parts = split(call('LINDEX', K.x, at))
      if parts[2] ~= 'tool' then
        if parts[2] == 'assistant' then open = parts[1] end
        break
      end
    end
  end
  local suspended = call('HGET', K.d, 'step') -- which keeps its calls whatever follows it
  local before, dropped, left = tonumber(A[first]), 0, 0
  for _, row in ipairs(owners(K.t, 'a')) do
    local message = split(row)[1]
    if message ~= open and message ~= suspended and tonumber(call('HGET', K.t, row .. '\0a')) < before then
      local fields = {}
      for _, attribute in ipairs(attributes) do fields[#fields + 1] = row .. '\0' .. attribute end
      each('HDEL', K.t, fields)
      dropped = dropped + 1
    else
      left = left + 1
    end
  end
  results[#results + 1] = whole(dropped)
  results[#results + 1] = whole(left)
end

-- Waits --------------------------------------------------------------------------------------------------------------

-- calls that must not have been answered, whether they are the session's own or of a root's tree
check.waits = function(first, last)
  local answered = { 'answered' }
  for i = first, last do
    local state = call('HGET', K.w, A[i] .. '\0s') or call('HGET', K.v, A[i] .. '\0s')
    if (state and state ~= 'waiting') or call('HGET', K.o, A[i] .. '\0') then answered[#answered + 1] = A[i] end
  end
  if #answered > 1 then return refuse(answered) end
end

local function is_open(state) return state == 'waiting' or state == 'answered' end

-- For each: call, message, state, deadline, created, doc, input, result, late. An entry that no longer waits is kept.
effect.pending = function(first, last)
  for i = first, last, 9 do
    local id = A[i]
    local was = call('HGET', K.w, id .. '\0s')
    if was == 'waiting' then
      call('HSET', K.w, id .. '\0m', A[i + 1], id .. '\0s', A[i + 2], id .. '\0l', A[i + 3], id .. '\0d', A[i + 5],
        id .. '\0i', A[i + 6], id .. '\0r', A[i + 7], id .. '\0e', A[i + 8])
      if not is_open(A[i + 2]) then shift(id) end
    elseif not was and call('HEXISTS', K.v, id .. '\0s') == 0 then
      local key = is_open(A[i + 2]) and K.w or K.v
      call('HSET', key, id .. '\0m', A[i + 1], id .. '\0s', A[i + 2], id .. '\0l', A[i + 3], id .. '\0t', given(A[i + 4]),
        id .. '\0d', A[i + 5], id .. '\0i', A[i + 6], id .. '\0r', A[i + 7], id .. '\0e', A[i + 8], id .. '\0n', count('seq', 1))
    end
  end
end

-- For each: call, state or nothing, whether it is noticed.
effect.resolve = function(first, last)
  for i = first, last, 3 do
    local id = A[i]
    local key = call('HEXISTS', K.w, id .. '\0s') == 1 and K.w or K.v
    if call('HEXISTS', key, id .. '\0s') == 1 then
      if A[i + 1] ~= '' then call('HSET', key, id .. '\0s', A[i + 1]) end
      if A[i + 2] == '1' then call('HSET', key, id .. '\0z', '1') end
      if key == K.w and not is_open(call('HGET', key, id .. '\0s')) then shift(id) end
    end
  end
end

-- For each: call, session, completed or nothing. A completed call stays completed.
effect.own = function(first, last)
  for i = first, last, 3 do
    call('HSET', K.o, A[i], A[i + 1])
    if A[i + 2] ~= '' then call('HSETNX', K.o, A[i] .. '\0', A[i + 2]) end
  end
end

effect.disown = function(first, last)
  for i = first, last do
    if call('HEXISTS', K.o, A[i]) == 1 then call('HSETNX', K.o, A[i] .. '\0', now) end
  end
end

-- Children -----------------------------------------------------------------------------------------------------------

-- For each: child, doc, status, awaited, call, created or nothing, remote or nothing.
effect.children = function(first, last)
  for i = first, last, 7 do
    local id = A[i]
    local created, remote = A[i + 5], A[i + 6]
    local was = call('HMGET', K.f, id .. '\0n', id .. '\0c', id .. '\0r')
    if was[1] then
      if created == '' then created = was[2] end
      if remote == '' then remote = was[3] end
    else
      if created == '' then created = now end
      was[1] = count('seq', 1)
    end
    call('HSET', K.f, id .. '\0d', A[i + 1], id .. '\0s', A[i + 2], id .. '\0a', A[i + 3], id .. '\0k', A[i + 4],
      id .. '\0c', created, id .. '\0r', remote or '', id .. '\0u', now, id .. '\0n', was[1], id .. '\0v', count('seq', 1))
    if A[i + 3] == '1' then
      call('HSET', K.a, id, '1')
    else
      call('HDEL', K.a, id)
    end
  end
end

-- Inbox and wakes ----------------------------------------------------------------------------------------------------

effect.consume = function(first, last)
  for i = first, last do
    if call('HDEL', K.b, A[i] .. '\0d', A[i] .. '\0b', A[i] .. '\0t', A[i] .. '\0n') > 0 then count('inbox', -1) end
  end
end

-- id, at, doc, body: once per id
effect.send = function(first)
  local id = A[first]
  if call('HSETNX', K.n, id, '1') == 1 then
    call('HSET', K.b, id .. '\0t', given(A[first + 1]), id .. '\0d', A[first + 2], id .. '\0b', A[first + 3],
      id .. '\0n', count('seq', 1))
    count('inbox', 1)
  end
end

-- child, run, at: a later run replaces the wake of an earlier one
effect.wake = function(first)
  local was = call('HGET', K.g, A[first])
  if not was or split(was)[1] ~= A[first + 1] then
    call('HSET', K.g, A[first], A[first + 1] .. '\0' .. given(A[first + 2]))
  end
end

-- parent, child, run, at: a wake that stays in the child's own slot until it is moved to its parent's
effect.outbox = function(first)
  call('HSET', K.y, A[first] .. '\0' .. A[first + 1], A[first + 2] .. '\0' .. given(A[first + 3]))
end

-- For each task its id, when it is due, and the rest of its row. An existing task stays.
effect.tasks = function(first, last)
  for i = first, last, 3 do
    call('HSETNX', K.j, A[i], given(A[i + 1]) .. '\0' .. now .. '\0' .. A[i + 2])
  end
end

-- Checkpoints and runs -----------------------------------------------------------------------------------------------

check.checkpoint = function(first)
  if call('HEXISTS', K.i, 'c' .. A[first]) == 1 then return refuse({ 'checkpoint', A[first] }) end
end

-- id, step, source, stream sequence
effect.checkpoint = function(first)
  local number = call('RPUSH', K.p, table.concat({
    H.msgs, H.v, now, A[first + 1], A[first + 2], A[first + 3], A[first], H.run, H.turn, H.status,
  }, '\0'))
  call('HSET', K.i, 'c' .. A[first], number)
  put('cp', A[first])
  put('cpsrc', A[first + 2])
  put('cpat', now)
end

-- turn, id, request or nothing, doc
check.run = function(first)
  if call('HEXISTS', K.r, 'i' .. A[first + 1]) == 1 then return refuse({ 'moved' }) end
end

effect.run = function(first)
  call('HSET', K.r, 'd' .. A[first], A[first + 3], 'i' .. A[first + 1], A[first])
  if A[first + 2] ~= '' then call('HSET', K.r, 'q' .. A[first + 2], A[first]) end
end

-- reason or nothing, seven numbers to add to the usage
effect.runchange = function(first)
  if A[first] ~= '' then put('rreason', A[first]) end
  local sums, i = {}, first
  for n in string.gmatch(H.usage ~= '' and H.usage or '0 0 0 0 0 0 0', '%S+') do
    i = i + 1
    sums[#sums + 1] = whole(tonumber(n) + tonumber(A[i]))
  end
  put('usage', table.concat(sums, ' '))
end

-- run status, the document's end, suspended step, whether there is an output, the output, the run's outcome
effect.outcome = function(first)
  call('HSET', K.d, 'end', A[first + 1], 'step', A[first + 2])
  if A[first + 3] == '1' then call('HSET', K.d, 'output', A[first + 4]) end
  call('HSET', K.r, 'e' .. H.turn, A[first + 5], 'o' .. H.turn, A[first + 4], 'x' .. H.turn,
    table.concat({ H.rsteps, H.rreason, H.usage, H.attempts, H.progress, now }, '\0'))
  if H.stopk ~= '' then -- for whoever repeats the commit
    put('endk', H.stopk)
    put('endr', H.stopr)
    put('enda', H.stopa)
  end
  put('rstatus', A[first])
  put('owed', now)
  put('usage', '')
  put('stopk', '')
end

-- run, kind, reason, at: an abort overrides an interrupt, a repeated request changes nothing
check.stop = function(first)
  if H.run ~= A[first] or H.rstatus ~= 'running' then return refuse({ 'notrunning' }) end
end

effect.stop = function(first)
  if H.stopk == '' or (H.stopk == 'interrupt' and A[first + 1] == 'abort') then
    put('stopk', A[first + 1])
    put('stopr', A[first + 2])
    put('stopa', given(A[first + 3]))
    stop = { H.stopk, H.stopr, H.stopa }
  end
end

-- The lease of a tree ------------------------------------------------------------------------------------------------

-- ttl in microseconds or nothing: sets a lease's end, and returns it with the session's root. A lease that never ended, or
-- ended later, gets this end only if the caller has added the sweeps' entry ('force').
check.renew = function(first)
  if A[first] == '' or A[first + 1] == 'force' then return end
  if H.lease == '' or tonumber(now) + tonumber(A[first]) < tonumber(H.lease) then return refuse({ 'sooner' }) end
end

effect.renew = function(first)
  local ends = A[first] ~= '' and whole(tonumber(now) + tonumber(A[first])) or ''
  put('lease', ends)
  results[#results + 1] = ends
  results[#results + 1] = H.rstatus == 'running' and H.run or ''
end

-- writes what a renewal writes, and leaves it as it is
effect.rewrite = function() put('lease', H.lease) end

-- root, owner, until: a member of a tree follows its root
effect.follow = function(first)
  if H.root == A[first] and H.owner == A[first + 1] and H.owner ~= '' then put('lease', A[first + 2]) end
end

-- root, owner, until: releases the lease together with the root's
effect.release = function(first)
  if H.root == A[first] and H.owner == A[first + 1] and H.owner ~= '' then
    put('owner', '')
    put('lease', H.rstatus == 'running' and A[first + 2] or '')
  end
end

-- The run has ended, and its stream has been closed: the lease is released.
check.ended = function()
  if H.rstatus == 'running' then return refuse({ 'running' }) end
end

effect.ended = function()
  put('owner', '')
  put('lease', '')
  put('owed', '')
end

-- run: its stream has been closed
effect.settleclose = function(first)
  if H.run == A[first] and H.rstatus ~= 'running' then put('owed', '') end
end

-- Expiry -------------------------------------------------------------------------------------------------------------

-- the number of milliseconds to keep a session that neither runs nor waits and whose stream is closed; whether chunks have
-- their own expiry, which is not extended
check.mortal = function()
  local rests = H.status == 'completed' or H.status == 'failed' or H.status == 'interrupted'
    or H.rstatus == '' or H.rstatus == 'completed' or H.rstatus == 'failed' or H.rstatus == 'interrupted'
  if not rests or H.rstatus == 'running' or H.owed ~= '' then return refuse({ 'busy' }) end
end

effect.mortal = function(first)
  put('mortal', '1')
  for _, key in ipairs(KEYS) do
    local left = key == K.X and A[first + 1] == '1' and call('PTTL', key) or -1
    if left < 0 or left > tonumber(A[first]) then call('PEXPIRE', key, A[first]) end
  end
end

-- reverts that; the stream reverts its own part when it continues
effect.immortal = function()
  put('mortal', '')
  for _, key in ipairs(KEYS) do
    if key ~= K.X then call('PERSIST', key) end
  end
end

-- Blobs --------------------------------------------------------------------------------------------------------------

-- reference, size, what it counts, the limit of all together or 0: the session has a blob, whose bytes are in another slot. Returns the total.
check.blob = function(first)
  if call('HEXISTS', K.B, A[first]) == 1 then return end
  local total, limit = (tonumber(call('HGET', K.B, 'total') or '0')) + tonumber(A[first + 2]), tonumber(A[first + 3])
  if limit > 0 and total > limit then return refuse({ 'blobs', whole(total) }) end
end

effect.blob = function(first)
  if call('HSETNX', K.B, A[first], A[first + 1]) == 1 then
    call('HINCRBY', K.B, 'total', A[first + 2])
    call('HINCRBY', K.B, 'count', 1)
  end
  results[#results + 1] = call('HGET', K.B, 'total')
end

-- fields and values: the blobs of another session
effect.blobs = function(first, last)
  local all = {}
  for i = first, last do all[#all + 1] = A[i] end
  each('HSET', K.B, all)
end

-- channel: deletes everything of a session, including its stream
effect.delete = function(first)
  for _, key in ipairs(KEYS) do call('UNLINK', key) end
  redis.pcall('PUBLISH', A[first], '1')
  exists = false
end

-- ---------------------------------------------------------------------------------------------------------------------

local operations, at, creates = {}, 4, false
while at <= #A do
  local size = tonumber(A[at + 1])
  operations[#operations + 1] = { A[at], at + 2, at + 1 + size }
  if A[at] == 'absent' then creates = true end
  at = at + 2 + size
end

if A[3] ~= '' and H.tok == A[3] then
  if creates then results[1] = H.first end
  return answer(3)
end

if not exists and not creates then return refuse({ 'missing' }) end
for _, op in ipairs(operations) do
  local checked = check[op[1]]
  local refused = checked and checked(op[2], op[3])
  if refused then return refused end
end

-- effects: from here on everything is done.

-- A small hash is searched from its beginning: what every commit needs comes first.
if not exists then
  dirty = {
    'v', '', 'commit', '', 'pack', '', 'told', '\0\0\0', 'msgs', '0', 'updated', '', 'cp', '', 'cpsrc', '', 'cpat', '', 'steps', '',
    'rsteps', '', 'usage', '',
  }
end
exists = true
if A[3] ~= '' then put('tok', A[3]) end
for _, op in ipairs(operations) do
  local perform = effect[op[1]]
  if perform then perform(op[2], op[3]) end
end
if exists then
  if repack then put('pack', table.concat({ H.owner, H.epoch, H.run, H.rstatus, H.turn, H.status }, '\0')) end
  if retell then put('told', table.concat({ H.inbox, H.stopk, H.stopr, H.stopa }, '\0')) end
  each('HSET', K.h, dirty)
  if H.mortal == '1' then -- what the change has added goes with the rest
    local left = call('PTTL', K.h)
    for _, key in ipairs(KEYS) do
      if left > 0 and call('PTTL', key) == -1 then call('PEXPIRE', key, whole(left)) end
    end
  end
end
return answer(1)
