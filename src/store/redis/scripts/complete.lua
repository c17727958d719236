-- complete

--include read
--include decode
--include restore

if r_owner == owner and (r_state == EXECUTING or r_state == UNKNOWN) then
  result, write, r_note = OK, true, note
  --include store_answer

elseif r_owner == owner and r_state == DONE then
  result = OK

else
  result, with_answer = REFUSED, true
end

--include reply
