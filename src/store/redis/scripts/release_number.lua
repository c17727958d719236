-- release

--include read
--include decode
--include mark

-- A stub says that the number was claimed and not executed: a release that
-- finds no record below the mark must not leave one.

if not found and (below or old_epoch) then
  return struct.pack('>BI8c16', OK, now, owner)
end

-- The last number claimed is the next one again.

if found and r_owner == owner and r_state == EXECUTING
   and same_epoch and next_hi == m_hi and next_lo == m_lo then
  redis.call('SET', KEYS[2], '\1' .. string.sub(ARGV[1], 115, 122)
             .. string.sub(ARGV[1], 99, 106), 'PX', mark_px)
end

--include release
--include reply
