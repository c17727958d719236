-- Who asks, the time of the server, and the stored bytes of the record.
--
-- The argument ARGV[1] has a fixed layout, numbers with the highest byte
-- first; see ngx_idempotency_redis_op_args():
--
--   offset  bytes
--      1     16    owner
--     17     32    fingerprint
--     49      8    lease, ms
--     57      8    how long an unknown outcome is kept, s
--     65      8    ttl of the answer, s
--     73      8    ttl of the tombstone behind it, s
--     81      8    fence
--     89      4    length of the answer's head
--     93      2    status of the answer
--     95      1    flags
--     96      1    whether the answer is kept
--     97      2    how the fingerprint was made
--     99      8    number of a sequence
--    107      8    that number + 1
--    115      8    epoch of the sequence
--    123      8    fence that another store has given for the same, or 0
--    131           note, up to the end

local owner = string.sub(ARGV[1], 1, OWNER_LEN)
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = (now_us - now_us % 1000) / 1000
local stored = redis.call('GET', KEYS[1])
