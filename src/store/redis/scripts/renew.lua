-- renew

--include read
--include decode
--include restore

result = REFUSED

if r_state == EXECUTING and r_owner == owner then
  result, write, r_lease = OK, true, now + lease
end

--include reply
