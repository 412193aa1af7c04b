-- Changes a stream. ARGV[3] is what to do, ARGV[4] the channel that notifies its readers.
--
-- An entry of the stream is a chunk, or a piece of one that was split: 'p' its producer, 'e' the producer's epoch, 'n' its
-- number, which pieces share, 't' its time, 'c' its bytes. Its id is the sequence, '-0'.

local A = ARGV
local head = call('HMGET', K.S, 'gen', 'status', 'last', 'floor', 'run', 'bytes')
local exists = head[1] and true or false
local last, floor, bytes = tonumber(head[3] or '0'), tonumber(head[4] or '0'), tonumber(head[6] or '0')
if last > floor and call('EXISTS', K.X) == 0 then floor, bytes = last, 0 end -- its chunks have expired

local function tell()
  redis.pcall('PUBLISH', A[4], '1') -- whoever may not be told looks by himself
end

-- The progress of a producer: its epoch and the next number that is expected.
local function producer(name)
  local found = call('HGET', K.S, 'p' .. name)
  if not found then return nil, 0 end
  local epoch, following = string.match(found, '^(%S+) (%S+)$')
  return tonumber(epoch), tonumber(following)
end

-- The run of a stream is its own session's; sub-agents write to it, too.
local function enter(run, own)
  if run ~= '' and (not head[5] or head[5] == '' or own == '1') then call('HSET', K.S, 'run', run) end
end

local function announce(name, epoch, known)
  if not known or epoch > known then call('HSET', K.S, 'p' .. name, whole(epoch) .. ' 0') end
end

-- the sequence of a chunk that was appended before; the floor if it was trimmed
local function sequence_of(name, epoch, number)
  local to = '+'
  while true do
    local found = call('XREVRANGE', K.X, to, '-', 'COUNT', 100)
    for _, entry in ipairs(found) do
      local fields = entry[2]
      if fields[2] == name and tonumber(fields[4]) == epoch and tonumber(fields[6]) <= number then
        return string.match(entry[1], '^%d+')
      end
    end
    if #found < 100 then return whole(floor) end
    to = '(' .. found[#found][1]
  end
end

local act = {}

-- producer, epoch, run, whether the stream is its own, first number, number of chunks, then for each chunk its time or '*',
-- the number of its pieces, and these; at the end the name of the process
act.append = function()
  local name, epoch, first, n = A[5], tonumber(A[6]), tonumber(A[9]), tonumber(A[10])
  local known, following = producer(name)
  if known and epoch < known then return { 'stale', whole(known) } end
  local skip = 0
  if known == epoch then
    if following > 0 and first > following then return { 'gap', whole(following) } end
    if n > 0 and following >= first + n then return { 'ok', sequence_of(name, epoch, first + n - 1) } end
    skip = math.max(0, following - first)
  end
  if head[2] ~= 'active' then return { 'closed', head[2] } end
  enter(A[7], A[8])
  announce(name, epoch, known)
  if n == 0 or skip >= n then return { 'ok', whole(last) } end
  local at = 11
  for i = 0, n - 1 do
    local time, pieces = A[at], tonumber(A[at + 1])
    if i >= skip then
      if time == '*' then time = now end
      for piece = 1, pieces do
        last = last + 1
        bytes = bytes + #A[at + 1 + piece]
        call('XADD', K.X, whole(last) .. '-0', 'p', name, 'e', A[6], 'n', whole(first + i), 't', time, 'c', A[at + 1 + piece])
      end
    end
    at = at + 2 + pieces
  end
  call('HSET', K.S, 'last', whole(last), 'bytes', whole(bytes), 'updated', now, 'p' .. name, A[6] .. ' ' .. whole(first + n))
  tell()
  return { 'ok', whole(last) }
end

-- producer, epoch, run, own, a name for this stream if it is new
act.reactivate = function()
  local name, epoch = A[5], tonumber(A[6])
  local known = producer(name)
  if known and epoch < known then return { 'stale', whole(known) } end
  if not exists then call('HSET', K.S, 'gen', A[9], 'created', now, 'last', '0') end
  call('HSET', K.S, 'status', 'active', 'floor', whole(floor), 'bytes', whole(bytes), 'end', '', 'output', '', 'failure', '', 'updated', now)
  call('PERSIST', K.X)
  enter(A[7], A[8])
  announce(name, epoch, known)
  tell()
  return { 'ok' }
end

-- as for reactivate, but without the epoch, which is in the session's header; the owner of the lease; then as for append. Opens
-- the stream for a run that has just been started, and appends its first chunks. Does nothing if another run, or none, was
-- started.
act.open = function()
  local session = call('HMGET', K.h, 'run', 'owner', 'epoch')
  if session[1] ~= A[7] or session[2] ~= A[10] then return { 'idle' } end
  local was = A
  A = { was[1], was[2], was[3], was[4], was[5], session[3], was[7], was[8], was[9] }
  local done = act.reactivate()
  if done[1] ~= 'ok' then return done end
  head[2], head[5] = 'active', was[7]
  A = { was[1], was[2], 'append', was[4] }
  for i = 11, #was do A[#A + 1] = was[i] end
  done = act.append()
  if done[1] ~= 'ok' then return done end
  return { 'ok', done[2], call('HMGET', K.S, 'run', 'created', 'updated', 'bytes'), whole(floor) }
end

-- producer, epoch, run, own, status, end, output, failure, how many milliseconds its chunks stay or 0; then, if chunks must be
-- there, a field of the header with the value that they have left: does nothing to a stream that a later epoch has written to,
-- or that is closed for good
act.close = function()
  local name, epoch = A[5], tonumber(A[6])
  if A[14] and call('HGET', K.S, A[14]) ~= A[15] then return { 'ok' } end
  local known = producer(name)
  if (known and epoch < known) or head[2] == 'ended' or head[2] == 'failed' then return { 'ok' } end
  call('HSET', K.S, 'status', A[9], 'end', A[10], 'output', A[11], 'failure', A[12], 'updated', now)
  enter(A[7], A[8])
  announce(name, epoch, known)
  if A[13] ~= '0' and A[9] ~= 'paused' then call('PEXPIRE', K.X, A[13]) end
  tell()
  return { 'ok' }
end

-- through, how many to keep or 0, before in microseconds or nothing
act.trim = function()
  local was = floor
  floor = math.min(math.max(floor, tonumber(A[5])), last)
  if A[6] ~= '0' then floor = math.max(floor, last - tonumber(A[6])) end
  local before, younger = tonumber(A[7]), A[7] == ''
  while not younger and floor < last do
    local found = call('XRANGE', K.X, '(' .. whole(floor) .. '-0', '+', 'COUNT', 100)
    if #found == 0 then break end
    for _, entry in ipairs(found) do
      younger = tonumber(entry[2][8]) >= before
      if younger then break end
      floor = tonumber(string.match(entry[1], '^%d+'))
    end
  end
  if floor > was then
    local from = '-'
    while from do -- what goes is measured
      local found = call('XRANGE', K.X, from, whole(floor) .. '-0', 'COUNT', 100)
      for _, entry in ipairs(found) do bytes = bytes - #entry[2][10] end
      from = #found == 100 and '(' .. found[100][1] or nil
    end
    call('XTRIM', K.X, 'MINID', whole(floor + 1) .. '-0')
    call('HSET', K.S, 'floor', whole(floor), 'bytes', whole(math.max(bytes, 0)))
    tell()
  end
  return { 'ok', whole(floor) }
end

act.delete = function()
  call('UNLINK', K.S, K.X)
  tell()
  return { 'ok' }
end

if not exists and A[3] ~= 'reactivate' and A[3] ~= 'open' then return { 'missing' } end
return act[A[3]]()
