-- Notes how far the filling of a tenant's indexes has come, if whoever asks still holds its lock. KEYS are the lock and the
-- notes. ARGV[3] is what the lock must hold, ARGV[4] for how many milliseconds it is extended; then either the place to continue
-- from, or nothing and the time at which everything was filled, or nothing twice to leave the rest to another process.

if call('GET', KEYS[1]) ~= ARGV[3] then return 0 end
if ARGV[5] ~= '' then
  call('HSET', KEYS[2], 'from', ARGV[5])
  call('PEXPIRE', KEYS[1], ARGV[4])
  return 1
end
if ARGV[6] ~= '' then
  call('HSETNX', KEYS[2], 'first', ARGV[6])
  call('HSET', KEYS[2], 'last', ARGV[6])
  call('HDEL', KEYS[2], 'from', 'at')
end
call('DEL', KEYS[1])
return 1
