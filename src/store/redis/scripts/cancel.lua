-- cancel

--include read
--include decode

-- A key that was not executed is done from now on, by no owner and without an
-- answer: that keeps gateways of all versions from executing it.  That it has
-- no attempts tells it from one that was executed; see record.h.

if found and r_state == DONE and r_attempts == 0 then
  result = OK

elseif not found or state == NONE or state == ISSUED then
  local granted = struct.unpack('>I8', ARGV[1], 123)
  fence = math.max(found and r_fence + 1 or 0,
                   granted > 0 and granted or now_us)
  --include new_record
  r_state, r_status, r_attempts = DONE, CANCELLED_STATUS, 0
  r_owner, r_fp, r_fp_how = NO_OWNER, string.rep('\0', 32), 0
  r_until, r_tombstone = now + ttl * 1000, tombstone
  result, write, rest = OK, true, ''

else
  result = REFUSED
end

--include reply
