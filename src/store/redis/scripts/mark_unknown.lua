-- unknown

--include read
--include decode

result = REFUSED

--include restore

if r_owner == owner then
  if r_state == EXECUTING then
    result, write = OK, true
    --include drop_answer
    r_state, r_lease = UNKNOWN, now
    r_note = note ~= '' and note or r_note

  elseif state == UNKNOWN then
    result = OK
  end
end

--include reply
