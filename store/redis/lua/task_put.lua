-- Adds tasks outside a commit, to those of a session (j), whose header (h) must exist, or to those of a tenant that have no
-- session. ARGV from 3 on: for each task its id, when it is due or '*', and the rest of its row. An existing task stays.

if K.h and call('EXISTS', K.h) == 0 then return 0 end
for i = 3, #ARGV, 3 do
  local due = ARGV[i + 1] == '*' and now or ARGV[i + 1]
  call('HSETNX', K.j, ARGV[i], due .. '\0' .. now .. '\0' .. ARGV[i + 2])
end
if K.h then -- what is added to a session that expires goes with the rest
  local left = call('PTTL', K.h)
  if left > 0 and call('PTTL', K.j) == -1 then call('PEXPIRE', K.j, left) end
end
return 1
