-- Writes the record if it has changed, and replies with
--
--   result (1 byte), now (8 bytes, ms), owner (16 bytes), record
--
-- The owner is the one of the argument, so that a reply to another operation
-- is recognized.  The record has its answer only with_answer; there is none if
-- none was found.
--
-- SPUBLISH came with Redis 7 and may be denied; PUBLISH takes its place.

if write then
  -- a free key: of a sequence its stub lasts as long as a record

  local px = flags >= SEQUENCE and r_keep * 1000 or STUB_TTL * 1000

  if r_state == EXECUTING or r_state == UNKNOWN then
    px = r_lease - now + r_keep * 1000

  elseif r_state == DONE then
    px = r_until - now + r_tombstone * 1000

  elseif r_state == ISSUED then
    px = r_until - now
  end

  if px < 1 then
    px = 1
  end

  --include encode

  redis.call('SET', KEYS[1], header .. rest, 'PX', px)

  if notify and result == OK then
    local receivers = redis.pcall('SPUBLISH', KEYS[1], '')

    if type(receivers) == 'table' then
      redis.pcall('PUBLISH', KEYS[1], '')
    end
  end

elseif found then
  header = with_answer and state == DONE and stored
           or string.sub(stored, 1, header_len)
end

return struct.pack('>BI8c16', result, now, owner) .. header
