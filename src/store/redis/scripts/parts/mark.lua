-- The mark of a sequence, KEYS[2]: a version byte, the epoch, and the lowest
-- number that was never claimed.  Numbers of 64 bits are two halves, since
-- those of Lua are exact up to 2^53 only.
--
--   old_epoch   a later epoch has begun
--   same_epoch  the mark is of this epoch
--   below       the number is below the mark: it was claimed before
--   mark_px     how long a mark is kept

local number_hi, number_lo, next_hi, next_lo, epoch_hi, epoch_lo
  = struct.unpack('>I4I4I4I4I4I4', ARGV[1], 99)
local mark = redis.call('GET', KEYS[2])
local m_epoch_hi, m_epoch_lo, m_hi, m_lo

if mark then
  if #mark ~= 17 or string.byte(mark) ~= 1 then
    return struct.pack('>BI8c16', REDIS_UNREADABLE, now, owner)
  end

  m_epoch_hi, m_epoch_lo, m_hi, m_lo = struct.unpack('>I4I4I4I4', mark, 2)
end

local old_epoch = mark and (epoch_hi < m_epoch_hi
                            or epoch_hi == m_epoch_hi
                               and epoch_lo < m_epoch_lo)
local same_epoch = mark and epoch_hi == m_epoch_hi and epoch_lo == m_epoch_lo
local below = same_epoch and (number_hi < m_hi
                              or number_hi == m_hi and number_lo < m_lo)
local mark_px = (math.max(keep, ttl + tombstone) + MARK_TTL) * 1000
