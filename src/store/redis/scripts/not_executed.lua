-- not executed

--include read
--include decode

result = REFUSED

if state == UNKNOWN and r_fence == fence then
  result, write = OK, true
  --include free_or_issued
end

--include reply
