local granted = struct.unpack('>I8', ARGV[1], 123)

if flags % (2 * CLAIM_ISSUED) >= CLAIM_ISSUED
   and (not found or state == NONE) then
  result = NOT_ISSUED

elseif found and r_owner == owner then
  if r_state == EXECUTING then
    result, write, r_lease = GRANTED, true, now + lease
    r_fence = math.max(r_fence, granted)

  elseif state == NONE or state == ISSUED then
    result = REFUSED

  else
    result, with_answer = EXISTS, true
  end

elseif (state == NONE or state == ISSUED)
   and string.find(rest, owner, 1, true) then
  result = REFUSED

elseif found and state ~= NONE and state ~= ISSUED
   and not (state == UNKNOWN and flags % (2 * CLAIM_UNKNOWN) == CLAIM_UNKNOWN
   and (fence == 0 or fence == r_fence) and fp == r_fp) then
  result, with_answer = EXISTS, true

  -- The first claim that meets a tombstone drops its answer to give memory
  -- back; if the server does not accept writes, a later one does.

  if state == TOMBSTONE and r_head + r_body > 0 then
    local kept_status = r_status
    --include drop_answer
    r_status = kept_status
    --include encode
    stored, header_len = header, #header
    redis.pcall('SET', KEYS[1], stored, 'PX',
                r_until - now + r_tombstone * 1000)
  end

else
  result, write = GRANTED, true

  if found then
    if state ~= UNKNOWN then
      r_created = time[1]
    end

    --include take_over
    r_fence = math.max(r_fence + 1, granted > 0 and granted or now_us)

  else
    fence = granted
    --include new_record
  end
end
