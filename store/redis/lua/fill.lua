-- Records the progress of filling a tenant's indexes, if the caller still holds the lock. KEYS are the lock and the record.
-- ARGV[3] is the expected value of the lock, ARGV[4] the number of milliseconds to extend it; then either the position to
-- continue from, or nothing and the time at which everything was filled, or nothing twice to leave the rest to others.

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
