-- Adds entries to indexes of one slot before the change that makes them true. The first key remembers when each was added
-- last, so that nobody removes one whose change is still on its way. ARGV from 3 on: how long that takes at most, in
-- microseconds, then for each index the member and its score.

local server = call('TIME') -- not the store's clock, which may be another
local added = tonumber(server[1]) * 1000000 + tonumber(server[2])
local at = 4
for i = 2, #KEYS do
  call('ZADD', KEYS[i], ARGV[at + 1], ARGV[at])
  call('ZADD', KEYS[1], whole(added), KEYS[i] .. '\0' .. ARGV[at])
  at = at + 2
end
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(added - tonumber(ARGV[3])))
return 1
