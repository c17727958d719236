-- executed

--include read
--include decode

if state == UNKNOWN and r_fence == fence then
  --include store_answer
  result, write, r_owner = OK, true, NO_OWNER

else
  result, with_answer = REFUSED, true
end

--include reply
