-- Reads a stream: its header, and up to ARGV[4] chunks after sequence ARGV[3], or about ARGV[5] bytes of them. ARGV[4] of 0
-- asks for none.

local head = call('HMGET', K.S, 'gen', 'status', 'last', 'floor', 'run', 'end', 'output', 'failure', 'created', 'updated', 'bytes')
if not head[1] then return {} end
-- Chunks expire some time after the stream has ended; its numbers do not.
if tonumber(head[3]) > tonumber(head[4]) and call('EXISTS', K.X) == 0 then head[4], head[11] = head[3], '0' end

local chunks, limit, size = {}, tonumber(ARGV[4]), tonumber(ARGV[5])
local from = ARGV[3]
while #chunks / 2 < limit and size > 0 do
  local part = math.min(limit - #chunks / 2, 100)
  local found = call('XRANGE', K.X, '(' .. from .. '-0', '+', 'COUNT', part)
  for _, entry in ipairs(found) do
    local body = entry[2][10]
    chunks[#chunks + 1] = entry[1]
    chunks[#chunks + 1] = body
    size = size - #body
    if size <= 0 then break end
  end
  if #found < part then break end
  from = string.match(chunks[#chunks - 1], '^%d+')
end
return { head, chunks }
