-- The common beginning of the scripts. ARGV[2] is the time in microseconds, or empty for the server's own.
--
-- Bodies are opaque strings: nothing here decodes or encodes them. Numbers are kept as decimal strings; those that may
-- exceed what Lua prints exactly go through whole().

local call = redis.call

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
  local n = #list
  if n <= 1000 then
    if n > 0 then call(command, key, unpack(list)) end
    return
  end
  for from = 1, n, 1000 do
    call(command, key, unpack(list, from, math.min(from + 999, n)))
  end
end
