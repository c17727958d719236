-- suspect

-- KEYS[1] is the last request with a source, scope and fingerprint, whatever
-- its key: a version byte, the owner of its claim (16 bytes), the digest of
-- its record (32), and when it came (8, ms).  ARGV[1] is the same of the
-- request that asks: owner (16 bytes) and digest (32); then the owner that it
-- may replace (16), and how long it is kept (8, ms).
--
-- The record of that request may be in another slot: the gateway looks at it.
-- The reply is that of the other scripts, with what is stored, but for its
-- version, in place of a record.

local owner, record, replaced, px = struct.unpack('>c16c32c16I8', ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local stored = redis.call('GET', KEYS[1])

if stored then
  if #stored ~= REDIS_LAST or string.byte(stored) ~= 1 then
    return struct.pack('>BI8c16', REDIS_UNREADABLE, now, owner)
  end

  local last = string.sub(stored, 2, OWNER_LEN + 1)

  if last ~= owner and last ~= replaced then
    return struct.pack('>BI8c16', EXISTS, now, owner) .. string.sub(stored, 2)
  end
end

redis.call('SET', KEYS[1], '\1' .. owner .. record .. struct.pack('>I8', now),
           'PX', px)

return struct.pack('>BI8c16', GRANTED, now, owner)
