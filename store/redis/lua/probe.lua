-- Lists the commands that the user may not use on the backend's keys, without using any: a script that meets one halfway
-- could not be rolled back.

local denied = {}
for _, command in ipairs({
  { 'EXISTS', KEYS[1] }, { 'DEL', KEYS[1] }, { 'UNLINK', KEYS[1] }, { 'PERSIST', KEYS[1] }, { 'PEXPIRE', KEYS[1], '1' },
  { 'HGET', KEYS[1], 'f' }, { 'HMGET', KEYS[1], 'f' }, { 'HGETALL', KEYS[1] }, { 'HKEYS', KEYS[1] }, { 'HEXISTS', KEYS[1], 'f' },
  { 'HSET', KEYS[1], 'f', 'v' }, { 'HSETNX', KEYS[1], 'f', 'v' }, { 'HDEL', KEYS[1], 'f' },
  { 'LRANGE', KEYS[1], '0', '1' }, { 'LINDEX', KEYS[1], '0' }, { 'RPUSH', KEYS[1], 'v' }, { 'LTRIM', KEYS[1], '0', '1' },
  { 'XADD', KEYS[1], '1-0', 'f', 'v' }, { 'XRANGE', KEYS[1], '-', '+' }, { 'XREVRANGE', KEYS[1], '+', '-' },
  { 'XTRIM', KEYS[1], 'MINID', '1' }, { 'ZADD', KEYS[1], '1', 'm' }, { 'ZSCORE', KEYS[1], 'm' }, { 'ZREM', KEYS[1], 'm' },
  { 'ZRANGE', KEYS[1], '0', '1' }, { 'ZREMRANGEBYSCORE', KEYS[1], '0', '1' }, { 'TIME' },
}) do
  if not redis.acl_check_cmd(unpack(command)) then denied[#denied + 1] = command[1] end
end
return denied
