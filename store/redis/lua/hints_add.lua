-- Adds entries to indexes of one slot before the change that makes them true. The first key remembers when each was last
-- added, so that nobody removes one whose change is still in progress. ARGV from 3 on: how long that takes at most, in
-- microseconds, then for each index the member, its score and what happens to an existing entry: 'LT' moves it if the new
-- score is lower, 'NX' keeps it, 'to' moves it in any case. 'true' is for an entry that is already true: it is restored if it
-- was lost. 'gone' removes an entry that can never be true again. 'now' keeps an existing entry, and gives a new one the
-- server's time as its score, those of one script in their order.
--
-- An existing entry may belong to a change that was applied, while this change may still be refused: it is not moved to where
-- readers that search for the other would miss it, unless it can only be left from a deleted session.

local server = call('TIME') -- not the store's clock, which may be another
local added = tonumber(server[1]) * 1000000 + tonumber(server[2])
local at = 4
for i = 2, #KEYS do
  local member, score, how = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if how == 'true' then
    call('ZADD', KEYS[i], 'LT', score, member)
  elseif how == 'gone' then
    call('ZREM', KEYS[i], member)
  else
    if how == 'to' then
      call('ZADD', KEYS[i], score, member)
    elseif how == 'now' then
      call('ZADD', KEYS[i], 'NX', whole(added + i), member)
    else
      call('ZADD', KEYS[i], how, score, member)
    end
    call('ZADD', KEYS[1], whole(added), KEYS[i] .. '\0' .. member)
  end
  at = at + 3
end
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(added - tonumber(ARGV[3])))
return 1
