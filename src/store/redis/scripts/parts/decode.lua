-- The argument and the record as locals: FIELDS is the header of a record,
-- in the order of FORMAT; see record.c.  Locals and included text instead of
-- tables and functions: creating these costs Redis more than all that the
-- scripts decide.
--
-- A script decides by
--   found   is there a record whose time is not over?
--   state   of that record now: one that executes and whose lease is over is
--           unknown, one that is done and whose ttl is over is a tombstone;
--           nil if none was found
--   rest    what follows the header of a record that is not done: the last
--           eight owners that gave the key up or lost it.  A late claim of
--           these must not be granted, since nobody would execute it.
--   note    of the operation; r_note is that of the record, '' if it has none.
--           A record has the version of older gateways, which know no notes,
--           unless it has one.
-- and sets
--   result       of the operation
--   write        whether FIELDS, r_note and rest are to be stored
--   with_answer  whether the reply has the answer, if the record is done

--define FORMAT '>BBBBI2I2c16c32I8I8I8I8I4I4I4I4I4I8'
--define FIELDS r_state, r_kept, r_zero, r_status, r_fp_how, r_owner, r_fp, \
--  r_fence, r_lease, r_until, r_created, r_attempts, r_keep, r_tombstone, \
--  r_head, r_body, r_issued
--define NO_OWNER string.rep('\0', OWNER_LEN)

local fp, lease, keep, ttl, tombstone, fence, head, status, flags, kept, fp_how
  = struct.unpack('>c32I8I8I8I8I8I4I2BBI2', ARGV[1], OWNER_LEN + 1)

local note = string.sub(ARGV[1], 131)
local notify = flags >= TELL

if notify then
  flags = flags - TELL
end

local result, write, with_answer, state, found
local rest, header, r_note, header_len = '', '', '', RECORD_HEADER
local version, FIELDS

if stored then
  if #stored >= RECORD_HEADER then
    version, FIELDS = struct.unpack(FORMAT, stored)
  end

  if version == RECORD_NOTED and #stored >= RECORD_HEADER + 2 then
    header_len = RECORD_HEADER + 2 + struct.unpack('>I2', stored,
                                                   RECORD_HEADER + 1)
    r_note = string.sub(stored, RECORD_HEADER + 3, header_len)

    if #stored >= header_len then
      version = RECORD_VERSION
    end
  end

  if version ~= RECORD_VERSION then
    return struct.pack('>BI8c16', REDIS_UNREADABLE, now, owner)
  end

  state = r_state

  if state == EXECUTING and r_lease <= now then
    state = UNKNOWN
  end

  if state == DONE and r_until <= now then
    state = TOMBSTONE
  end

  found = not (state == TOMBSTONE and r_until + r_tombstone * 1000 <= now
               or state == ISSUED and r_until <= now)

  if not found then
    state = nil

  elseif r_state < DONE and #stored > header_len then
    rest = string.sub(stored, header_len + 1)
  end
end
