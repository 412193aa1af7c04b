-- Writes a key that nobody reads and that expires, if KEYS has one. Without a key it does nothing, but a server that refuses
-- writes refuses it nevertheless: its memory is full, it cannot save, it is a replica or lacks replicas.

if KEYS[1] then redis.call('SET', KEYS[1], '', 'PX', 60000) end
return 1
