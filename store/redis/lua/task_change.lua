-- Replaces the row of a task, or removes it. ARGV from 3 on: its id, the row as it was read, the new row or nothing. The answer
-- is 0 if the row has changed since.

if call('HGET', K.j, ARGV[3]) ~= ARGV[4] then return 0 end
if ARGV[5] == '' then
  call('HDEL', K.j, ARGV[3])
else
  call('HSET', K.j, ARGV[3], ARGV[5])
end
return 1
