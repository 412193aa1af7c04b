-- Adds entries to indexes of one slot before the change that makes them true. The first key remembers when each was added
-- last, so that nobody removes one whose change is still on its way. ARGV from 3 on: how long that takes at most, in
-- microseconds, then for each index the member, its score and how an entry that is there is met: 'LT' moves it if the new score
-- is lower, 'NX' leaves it, 'to' moves it in any case. 'true' stands for one that is true already: it is put back if it was lost.
-- 'gone' removes one that can never be true again. 'now' leaves one that is there, and gives a new one the server's time as its
-- score, those of one script in their order.
--
-- An entry that is there may be that of a change which was made, while this one may yet be refused: it is not moved to where
-- those that look for the other would not find it, unless it can only be left over from a session that is gone.

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
