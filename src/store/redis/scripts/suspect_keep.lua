-- suspect keep

-- KEYS[1] is that of suspect.lua.  ARGV[1] is an owner (16 bytes): if it is
-- still that of the last request, it is kept so long (8 bytes, ms), 0: not at
-- all.

local owner, px = struct.unpack('>c16I8', ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local stored = redis.call('GET', KEYS[1])
local result = REFUSED

if stored and string.sub(stored, 2, OWNER_LEN + 1) == owner then
  redis.call('PEXPIRE', KEYS[1], px)
  result = OK
end

return struct.pack('>BI8c16', result, now, owner)
