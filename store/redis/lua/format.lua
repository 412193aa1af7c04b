-- Records that only programs that know the format ARGV[3] can use the store.

if tonumber(call('GET', KEYS[1]) or '0') < tonumber(ARGV[3]) then call('SET', KEYS[1], ARGV[3]) end
return 1
