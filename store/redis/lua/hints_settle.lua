-- Corrects or removes entries that were found to be untrue, unless they were added again in the meantime or so recently that
-- their change may still be in progress. ARGV from 3 on: how long that takes at most, then for each index the member, the
-- score that was seen or nothing, the right one or nothing, and '1' if readers find it at any score, so that it may always be moved.

local server = call('TIME')
local oldest = tonumber(server[1]) * 1000000 + tonumber(server[2]) - tonumber(ARGV[3])
local at = 4
for i = 2, #KEYS do
  local member, seen, right, movable = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3] == '1'
  local added = call('ZSCORE', KEYS[1], KEYS[i] .. '\0' .. member)
  local score = call('ZSCORE', KEYS[i], member)
  local settled = not (added and tonumber(added) > oldest)
  if score and (seen == '' or tonumber(score) == tonumber(seen)) then
    if right ~= '' and (settled or movable) then
      call('ZADD', KEYS[i], right, member)
    elseif right == '' and settled then
      call('ZREM', KEYS[i], member)
    end
  end
  at = at + 4
end
return 1
