-- Acquires, renews or releases a lock. ARGV[3] says which; then its owner, and its ttl in microseconds, or the held token.
-- A released lock is kept, because its token must keep increasing.

local A = ARGV
local held = call('HMGET', K.L, 'owner', 'token', 'until')
local owner, token, ends = held[1] or '', held[2] or '0', tonumber(held[3] or '0')
local time = tonumber(now)

if A[3] == 'acquire' then
  if owner ~= '' and owner ~= A[4] and time < ends then return { '0' } end
  token, ends = whole(tonumber(token) + 1), whole(time + tonumber(A[5]))
  call('HSET', K.L, 'owner', A[4], 'token', token, 'until', ends)
  return { '1', token, ends }
end

if A[3] == 'renew' then
  if owner ~= A[4] or token ~= A[6] or time >= ends then return { '0' } end
  ends = whole(time + tonumber(A[5]))
  call('HSET', K.L, 'until', ends)
  return { '1', token, ends }
end

if owner == A[4] and token == A[6] then call('HSET', K.L, 'owner', '', 'until', '0') end
return { '1' }
