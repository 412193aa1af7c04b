-- Writes a key that nobody reads and that expires, if it is given one. Without a key it does nothing, and is refused all the same
-- by a server that takes no writes: its memory is full, it cannot save, it is a replica or lacks some.

if KEYS[1] then redis.call('SET', KEYS[1], '', 'PX', 60000) end
return 1
