-- What every script begins with.
--
-- KEYS are keys of one slot; ARGV[1] has one letter for each, by which the rest of the script knows it (keys.go says what
-- each holds). ARGV[2] is the time in microseconds, or empty for the server's own.
--
-- Bodies are opaque strings: nothing here decodes or encodes them. Numbers are kept as decimal strings; those that may
-- exceed what Lua prints exactly go through whole().

local call = redis.call

local K = {}
for i = 1, #KEYS do
  K[string.sub(ARGV[1], i, i)] = KEYS[i]
end

local now = ARGV[2]
if now == '' then
  local t = call('TIME')
  now = t[1] .. string.format('%06d', t[2])
end

local function whole(n) return string.format('%.0f', n) end

-- split cuts a row at its zero bytes, which no text may hold.
local function split(s)
  local out, from = {}, 1
  while true do
    local at = string.find(s, '\0', from, true)
    if not at then
      out[#out + 1] = string.sub(s, from)
      return out
    end
    out[#out + 1] = string.sub(s, from, at - 1)
    from = at + 1
  end
end

-- each calls a command with all of a list, in parts that fit Lua's stack; pairs stay together.
local function each(command, key, list)
  for from = 1, #list, 1000 do
    call(command, key, unpack(list, from, math.min(from + 999, #list)))
  end
end
