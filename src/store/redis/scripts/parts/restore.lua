-- The owner is executing.  If there is no record, the server has lost its
-- claim; and also if the key reads as free and this owner has not given it up:
-- that is an older copy, or was written after the loss.  It is claimed again.

if not found then
  --include new_record

elseif (state == NONE or state == ISSUED) and r_owner ~= owner
   and not string.find(rest, owner, 1, true) then
  --include take_over
  r_created = time[1]
  r_fence = math.max(r_fence + 1, fence > 0 and fence or now_us)
end
