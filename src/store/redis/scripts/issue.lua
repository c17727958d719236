-- issue

--include read
--include decode

-- The owners that a stub refuses are refused after it was issued as well.

if found and state ~= NONE then
  result = REFUSED

else
  local attempts = found and r_attempts or 0
  local last_owner = found and r_owner or NO_OWNER
  local granted = struct.unpack('>I8', ARGV[1], 123)
  fence = granted > 0 and granted or now_us
  fence = found and math.max(r_fence + 1, fence) or fence
  --include new_record
  r_owner, r_fp = last_owner, string.rep('\0', 32)
  r_until = now + ttl * 1000
  r_state, r_lease, r_attempts, r_issued = ISSUED, now, attempts, r_until
  result, write = OK, true
end

--include reply
