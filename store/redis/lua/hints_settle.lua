-- Corrects or removes entries that were found untrue, unless they were added again meanwhile or so lately that the change
-- may still come. ARGV from 3 on: how long that takes at most, then for each index the member, the score that was seen, and
-- the right one or nothing.

local server = call('TIME')
local oldest = tonumber(server[1]) * 1000000 + tonumber(server[2]) - tonumber(ARGV[3])
local at = 4
for i = 2, #KEYS do
  local member, seen, right = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local added = call('ZSCORE', KEYS[1], KEYS[i] .. '\0' .. member)
  local score = call('ZSCORE', KEYS[i], member)
  if score and tonumber(score) == tonumber(seen) and not (added and tonumber(added) > oldest) then
    if right == '' then
      call('ZREM', KEYS[i], member)
    else
      call('ZADD', KEYS[i], right, member)
    end
  end
  at = at + 3
end
return 1
