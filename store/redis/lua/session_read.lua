-- Reads parts of one session, all of the same moment. ARGV from 3 on: for each part its name, the number of its
-- arguments, and these. The answer begins with the time; a session that does not exist has no parts.

if call('EXISTS', K.h) == 0 then return { now } end

local read = {}

read.all = function(letter) return call('HGETALL', K[letter]) end

read.get = function(letter, ...) return call('HMGET', K[letter], ...) end

read.range = function(letter, from, to) return call('LRANGE', K[letter], from, to) end

-- Messages from a number on: up to a number of them, or roughly a number of bytes, at least one.
read.part = function(from, limit, size)
  local out = {}
  from, limit, size = tonumber(from), tonumber(limit), tonumber(size)
  while #out < limit and size > 0 do
    local n = math.min(limit - #out, 20)
    local found = call('LRANGE', K.m, from + #out, from + #out + n - 1)
    for _, body in ipairs(found) do
      out[#out + 1] = body
      size = size - #body
      if size <= 0 then break end
    end
    if #found < n then break end
  end
  return out
end

-- Messages from a number on: up to a number of them, as many as fit into a number of bytes if that is not 0, but at least one.
-- A few more may be read, because the length of a message is known only after reading it.
read.page = function(from, limit, size)
  from, limit, size = tonumber(from), tonumber(limit), tonumber(size)
  if size == 0 then return call('LRANGE', K.m, from, from + limit - 1) end
  local out = {}
  while #out < limit do
    local n = math.min(limit - #out, 4)
    local found = call('LRANGE', K.m, from + #out, from + #out + n - 1)
    for _, body in ipairs(found) do
      size = size - #body
      if size < 0 and #out > 0 then return out end
      out[#out + 1] = body
    end
    if #found < n then break end
  end
  return out
end

read.len = function(letter) return call('LLEN', K[letter]) end

-- Custom state at a version: the last snapshot up to it, and the writes since.
read.state = function(version)
  if version == '' then version = call('HGET', K.h, 'v') end
  local limit, best = tonumber(version), 0
  for _, v in ipairs(call('HKEYS', K.z)) do
    local n = tonumber(v)
    if n <= limit and n > best then best = n end
  end
  local out = { whole(best), best > 0 and call('HGET', K.z, whole(best)) or '' }
  for _, entry in ipairs(call('XRANGE', K.s, '(' .. whole(best) .. '-0', version .. '-0')) do
    out[#out + 1] = entry[2][2]
  end
  return out
end

read.awaited = function()
  local out = {}
  for _, child in ipairs(call('HKEYS', K.a)) do
    for _, attribute in ipairs({ 'd', 's', 'a', 'k', 'c', 'u', 'r', 'n', 'v' }) do
      local field = child .. '\0' .. attribute
      local value = call('HGET', K.f, field)
      if value then
        out[#out + 1] = field
        out[#out + 1] = value
      end
    end
  end
  return out
end

local function run(turn)
  local parts = call('HMGET', K.r, 'd' .. turn, 'e' .. turn, 'o' .. turn, 'x' .. turn)
  return { turn, parts[1], parts[2], parts[3], parts[4] }
end

-- A run by its id ('i'), by its request ('q'), or the current one ('').
read.run = function(by, id)
  if by == '' then
    by, id = 'i', call('HGET', K.h, 'run') or ''
  end
  local turn = call('HGET', K.r, by .. id)
  if not turn then return {} end
  return run(turn)
end

read.runs = function(from, to)
  local out = {}
  for turn = tonumber(from), tonumber(to) do
    out[#out + 1] = run(whole(turn))
  end
  return out
end

local function checkpoint(number)
  return { whole(number), call('LINDEX', K.p, number - 1), call('HEXISTS', K.c, 'u' .. whole(number)) }
end

-- A checkpoint by its id, or, if that is empty, the session's latest.
read.checkpoint = function(id)
  if id == '' then id = call('HGET', K.h, 'cp') or '' end
  local number = id ~= '' and call('HGET', K.i, 'c' .. id)
  if not number then return {} end
  return checkpoint(tonumber(number))
end

-- Checkpoints from a number down to another.
read.checkpoints = function(from, to)
  local out = {}
  for number = tonumber(from), tonumber(to), -1 do
    out[#out + 1] = checkpoint(number)
  end
  return out
end

-- The last standing checkpoint that counts at most n messages.
read.within = function(n)
  local id = call('HGET', K.h, 'cp') or ''
  local number = tonumber(id ~= '' and call('HGET', K.i, 'c' .. id) or '0')
  while number > 0 do
    local found = checkpoint(number)
    local count = tonumber(string.match(found[2], '^%d+'))
    if found[3] == 0 and count and count <= tonumber(n) then return found end
    number = number - 1
  end
  return {}
end

-- The rows of one message's calls.
read.calls = function(message)
  local prefix, out = message .. '\0', {}
  local rows = call('HGETALL', K.t)
  for i = 1, #rows, 2 do
    if string.sub(rows[i], 1, #prefix) == prefix then
      out[#out + 1] = rows[i]
      out[#out + 1] = rows[i + 1]
    end
  end
  return out
end

local out, at = { now }, 3
while at <= #ARGV do
  local name, count = ARGV[at], tonumber(ARGV[at + 1])
  out[#out + 1] = read[name](unpack(ARGV, at + 2, at + 1 + count))
  at = at + 2 + count
end
return out
