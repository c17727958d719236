-- probe

--include read
--include decode

-- With a fence: the right to probe is given back.

if fence > 0 then
  result = REFUSED

  if found and r_state == UNKNOWN and r_fence == fence then
    result, write, r_lease = OK, true, now
  end

elseif state ~= UNKNOWN or r_lease > now then
  result, with_answer = EXISTS, true

else
  --include drop_answer
  result, write, r_state, r_lease = GRANTED, true, UNKNOWN, now + lease
  local granted = struct.unpack('>I8', ARGV[1], 123)
  r_fence = math.max(r_fence + 1, granted > 0 and granted or now_us)
end

--include reply
