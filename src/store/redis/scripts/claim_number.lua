-- claim

--include read
--include decode
--include mark

-- If another store has granted it, that one has checked its turn.  A number
-- below the mark that has no record was executed, and its record is
-- gone; if it has a stub, it was released and may be claimed again.  A strict
-- sequence has no gap: only the number of the mark is claimed next, and 0 or 1
-- in a new epoch.

local known = found and state ~= NONE
local strict = flags >= SEQUENCE_STRICT
local gap = strict and mark and not known and not below
            and not (same_epoch and number_hi == m_hi and number_lo == m_lo)
            and not (not same_epoch and number_hi == 0 and number_lo <= 1)

if struct.unpack('>I8', ARGV[1], 123) == 0
   and (old_epoch or gap or below and not found) then
  local expected = ''

  if strict and not old_epoch then
    expected = same_epoch and string.sub(mark, 10) or string.rep('\0', 8)
  end

  return struct.pack('>BI8c16', OUT_OF_ORDER, now, owner) .. expected
end

--include claim

-- If the record exists and the mark does not, the mark is written again if the
-- server accepts writes; the record is returned in any case.

if (result == GRANTED or result == EXISTS) and not below and not old_epoch then
  local call = result == GRANTED and redis.call or redis.pcall
  call('SET', KEYS[2], '\1' .. string.sub(ARGV[1], 115, 122)
       .. string.sub(ARGV[1], 107, 114), 'PX', mark_px)

elseif result == GRANTED then
  redis.call('PEXPIRE', KEYS[2], mark_px)
end

--include reply
